/** Files sent into `backups/` of a data pool: in parts by the tus protocol, or in one request. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyReply, FastifyRequest } from 'fastify';
import Type from 'typebox';
import type { Services } from '../../services/services.ts';
import type { UploadRecord } from '../../services/uploads/uploads.ts';
import { type App, principalOf, type RouteModule, scope } from '../app.ts';
import { watchRight } from '../auth.ts';
import { bodyOf } from '../body-stream.ts';
import { whenClosed } from '../closed.ts';
import { boundaryOf, fileOf } from '../multipart.ts';
import { ARCHIVE_READ, NODE_WORK, POOL_WRITE } from '../node-errors.ts';
import { permitted } from '../permitted.ts';
import { described, GIVEN_UUID_PATTERN, GivenUuid, IdParams, ref } from '../schemas/common.ts';
import { UploadSchema } from '../schemas/upload.ts';
import {
  bytesOf,
  checksumOf,
  metadataOf,
  requireTus,
  speaksTus,
  TUS_EXTENSIONS,
  TUS_VERSION,
} from '../tus.ts';

const tags = ['library'];
const PATH = '/api/library/upload/';
const PART_TYPE = 'application/offset+octet-stream';
/** Larger than any backup; the node holds it. */
const MAX_BYTES = 64 * 1024 ** 4;

const ERRORS = [
  ...NODE_WORK,
  ...POOL_WRITE,
  ...ARCHIVE_READ,
  'upload_not_found',
  'upload_busy',
  'upload_offset',
  'upload_under_way',
  'upload_checksum',
  'upload_hash',
  'tus_version',
  'node_not_found',
  'bad_request',
  'invalid_field',
  'invalid_name',
  'missing_field',
  'unknown_field',
  'invalid_uuid',
  'body_too_large',
  'unsupported_media_type',
  'too_many_requests',
] as const;

const NewUploadQuery = Type.Object(
  {
    datapool: described(Type.Optional(GivenUuid), 'where it goes; tus: also in Upload-Metadata'),
    filename: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 500,
        description: 'a name, or a directory and a name; tus: also in Upload-Metadata',
      }),
    ),
    sha256: Type.Optional(
      Type.String({
        pattern: '^[0-9a-fA-F]{64}$',
        description: 'of the whole file: with another one it is not kept',
      }),
    ),
  },
  { additionalProperties: false },
);

/** In a scope of their own: their bodies are not read into memory, whatever type they say they are of. */
export const uploadRoutes: RouteModule = (app, services) => {
  const routes = scope('upload', own => {
    own.removeAllContentTypeParsers();
    own.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
    own.addHook('onSend', async (_request, reply, payload) => {
      reply.header('tus-resumable', TUS_VERSION);
      return payload;
    });
    createRoute(own, services);
    partRoutes(own, services);
  });
  void app.register(routes);
};

function createRoute(app: App, services: Services): void {
  app.options(
    PATH,
    {
      config: { access: 'public', errors: [] },
      schema: { hide: true, tags, summary: 'What of tus is spoken' },
    },
    (_request, reply) =>
      reply
        .code(204)
        .headers({
          'tus-version': TUS_VERSION,
          'tus-extension': TUS_EXTENSIONS,
          'tus-max-size': MAX_BYTES,
          'tus-checksum-algorithm': 'sha256,sha1',
        })
        .send(),
  );
  app.post(
    PATH,
    {
      config: { access: 'library.upload', errors: ERRORS },
      schema: {
        tags,
        operationId: 'library_upload_new',
        summary:
          'Upload a backup, an appliance or a file of one into a data pool, in one request or in parts',
        description:
          'Without the header Tus-Resumable the body is the file, or a form with it as its one file; the answer comes when it has its ' +
          'name, and of an upload that breaks off nothing stays. With it (tus 1.0.0) an upload is created: Upload-Length, and ' +
          'datapool, filename and sha256 in Upload-Metadata or the query; the answer is 201, and its Location takes the parts by ' +
          'PATCH. Either way there is nothing under the name before all of it has come.',
        consumes: ['application/octet-stream', 'multipart/form-data'],
        querystring: NewUploadQuery,
        response: { 200: ref(UploadSchema), 201: ref(UploadSchema) },
      },
    },
    (request, reply) =>
      speaksTus(request.headers) ? create(services, request, reply) : uploadWhole(services, request, reply),
  );
}

function partRoutes(app: App, services: Services): void {
  const path = `${PATH}:id/`;
  const config = { access: 'library.upload', errors: ERRORS } as const;
  const answer = (request: FastifyRequest, upload: UploadRecord) => shown(upload, request);
  app.get(
    path,
    {
      config,
      exposeHeadRoute: false,
      schema: { tags, summary: 'An upload', params: IdParams, response: { 200: ref(UploadSchema) } },
    },
    async request => answer(request, await services.fileUploads.get(request.params.id)),
  );
  app.head(
    path,
    {
      config,
      schema: { tags, hide: true, summary: 'How much of an upload has come (tus)', params: IdParams },
    },
    async (request, reply) => {
      requireTus(request.headers);
      const { signal } = senderOf(services, request, reply);
      const { id } = request.params;
      const upload = await services.fileUploads.settled(id, principalOf(request), signal);
      return withOffset(reply.code(200), upload).send();
    },
  );
  app.patch(
    path,
    {
      config,
      schema: {
        tags,
        operationId: 'library_upload_send',
        summary: 'Send bytes of an upload (tus)',
        description:
          'Upload-Offset says where they begin: there the upload must be. The answer has the new one; with the last bytes it comes when the file has its name.',
        consumes: [PART_TYPE],
        params: IdParams,
        response: { 204: Type.Null({ description: 'they are on the disk' }) },
      },
    },
    (request, reply) => takePart(services, request, reply, request.params.id),
  );
  app.delete(
    path,
    {
      config,
      schema: {
        tags,
        operationId: 'library_upload_end',
        summary: 'End an upload: nothing of it stays (tus)',
        params: IdParams,
        response: { 204: Type.Null({ description: 'it is gone' }) },
      },
    },
    async (request, reply) => {
      await services.fileUploads.remove(request.params.id);
      return reply.code(204).send(null);
    },
  );
}

async function create(services: Services, request: FastifyRequest, reply: FastifyReply) {
  const sizeBytes = bytesOf(request.headers, 'Upload-Length');
  const metadata = metadataOf(request.headers);
  const query = request.query as Record<string, string | undefined>;
  const given = (name: string) => query[name] ?? metadata.get(name);
  const upload = { ...newUpload(given), sizeBytes, isOneWrite: false };
  const made = await services.fileUploads.create(upload, principalOf(request));
  request.taskId = made.task;
  reply.code(201).header('location', `${PATH}${made.id}/`);
  return shown(sizeBytes === 0 ? await ended(services, request, reply, made) : made, request, reply);
}

/** An empty file has all its bytes. */
function ended(services: Services, request: FastifyRequest, reply: FastifyReply, { id }: UploadRecord) {
  return services.fileUploads.settled(id, principalOf(request), senderOf(services, request, reply).signal);
}

async function uploadWhole(services: Services, request: FastifyRequest, reply: FastifyReply) {
  const query = request.query as Record<string, string | undefined>;
  const boundary = boundaryOf(request.headers['content-type'] ?? '');
  const { whole, signal } = senderOf(services, request, reply);
  const bytes = boundary === undefined ? whole : fileOf(whole, boundary);
  const hasLength = boundary === undefined && request.headers['content-length'] !== undefined;
  const sizeBytes = hasLength ? bytesOf(request.headers, 'Content-Length') : undefined;
  const user = principalOf(request);
  const { fileUploads } = services;
  const made = await fileUploads.create(
    { ...newUpload(name => query[name]), sizeBytes, isOneWrite: true },
    user,
  );
  request.taskId = made.task;
  try {
    return shown(await fileUploads.write(made.id, { offset: 0, last: true, bytes }, user, signal), request);
  } catch (error) {
    // the node gives it up by itself when it saw the bytes break off
    await fileUploads.remove(made.id).catch(() => {});
    throw error;
  }
}

async function takePart(services: Services, request: FastifyRequest, reply: FastifyReply, id: string) {
  requireTus(request.headers);
  const type = request.headers['content-type'] ?? '';
  if (type !== PART_TYPE) throw new VirtkeepError('unsupported_media_type', { value: type.slice(0, 100) });
  const offset = bytesOf(request.headers, 'Upload-Offset');
  const checksum = checksumOf(request.headers);
  const { whole, signal } = senderOf(services, request, reply);
  const part = { offset, last: false, bytes: whole, ...(checksum && { checksum }) };
  const upload = await services.fileUploads.write(id, part, principalOf(request), signal);
  return withOffset(reply.code(204), upload).send() as never;
}

/** @throws VirtkeepError missing_field, invalid_uuid, invalid_field */
function newUpload(given: (name: string) => string | undefined) {
  const [datapool, filename, sha256 = ''] = ['datapool', 'filename', 'sha256'].map(given);
  if (!datapool) throw new VirtkeepError('missing_field', { field: 'datapool' });
  if (!filename) throw new VirtkeepError('missing_field', { field: 'filename' });
  if (!new RegExp(GIVEN_UUID_PATTERN).test(datapool))
    throw new VirtkeepError('invalid_uuid', { value: datapool.slice(0, 100), field: 'datapool' });
  if (sha256 !== '' && !/^[0-9a-fA-F]{64}$/.test(sha256))
    throw new VirtkeepError('invalid_field', { field: 'sha256', reason: 'is not 64 hexadecimal digits' });
  return { datapool: datapool.toLowerCase(), filename, sha256: sha256.toLowerCase() };
}

/** The bytes of a request, and what tells that its sender has left or may not go on. */
function senderOf(services: Services, request: FastifyRequest, reply: FastifyReply) {
  const { raw } = request;
  const hungUp = new AbortController();
  whenClosed(reply.raw, () => hungUp.abort());
  whenClosed(
    reply.raw,
    watchRight(services, request, () => raw.destroy()),
  );
  return { whole: bodyOf(raw, services.config.limits.download_idle_s * 1000), signal: hungUp.signal };
}

function withOffset(reply: FastifyReply, { offset, size, expires, status }: UploadRecord): FastifyReply {
  reply.header('upload-offset', offset);
  if (size === null) reply.header('upload-defer-length', '1');
  else reply.header('upload-length', size);
  if (status !== 'DONE') reply.header('upload-expires', new Date(expires).toUTCString());
  return reply;
}

function shown(upload: UploadRecord, request: FastifyRequest, reply?: FastifyReply) {
  if (reply) reply.header('upload-expires', new Date(upload.expires).toUTCString());
  return { ...upload, file: upload.file && permitted('file', upload.file, principalOf(request)) };
}
