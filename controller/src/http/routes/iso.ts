/** ISO images of the data pools. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyReply, FastifyRequest } from 'fastify';
import Type from 'typebox';
import { requirePermission } from '../../auth/principal.ts';
import type { IsoRecord, NewIso } from '../../services/isos/isos.ts';
import type { Services } from '../../services/services.ts';
import { type App, principalOf, type RouteModule, scope } from '../app.ts';
import { tokenOf, watchRight } from '../auth.ts';
import { bodyOf } from '../body-stream.ts';
import { answerBytes, BYTE_ANSWERS, type ByteSource } from '../byte-answer.ts';
import { whenClosed } from '../closed.ts';
import { LOGIN_ERRORS } from '../document/error-keys.ts';
import { STORY } from '../document/story.ts';
import { boundaryOf, fileOf } from '../multipart.ts';
import { NODE_CALL, POOL_READ, POOL_WRITE } from '../node-errors.ts';
import { listFromArray, parsePage } from '../paging.ts';
import { permitted } from '../permitted.ts';
import {
  body,
  described,
  filterById,
  GivenUuid,
  IdParams,
  listOf,
  listQuery,
  ref,
} from '../schemas/common.ts';
import { IsoSchema } from '../schemas/iso.ts';
import { Tickets } from '../tickets.ts';

const tags = ['iso'];
const ORDERINGS = ['filename', 'verbose_name', 'size', 'created', 'modified'] as const;

const NewName = Type.String({
  pattern: '^[^./\\\\-][^/\\\\]*\\.[iI][sS][oO]$',
  maxLength: 200,
  description: 'a name in the data pool itself, with .iso at its end',
});
const newImage = { datapool: described(GivenUuid, 'where it lies'), filename: NewName };
const TicketParams = Type.Object(
  { ticket: Type.String({ minLength: 1, maxLength: 100, description: 'of the address' }) },
  { additionalProperties: false },
);

const READ_ERRORS = [...NODE_CALL, ...POOL_READ, 'iso_not_found'] as const;
const BYTES_ERRORS = [...READ_ERRORS, 'range_not_satisfiable'] as const;
const UPLOAD_ERRORS = [
  ...NODE_CALL,
  ...POOL_WRITE,
  'iso_not_found',
  'node_in_service',
  'disk_full',
  'invalid_field',
  'invalid_name',
  'missing_field',
  'unknown_field',
  'invalid_uuid',
  'body_too_large',
  'unsupported_media_type',
] as const;

export const isoRoutes: RouteModule = (app, services) => {
  readRoutes(app, services);
  downloadRoutes(app, services);
  announceRoute(app, services);
  void app.register(scope('uploads of images', own => uploadRoutes(own, services)));
};

function readRoutes(app: App, services: Services): void {
  app.get(
    '/api/iso/',
    {
      config: { access: 'library.read', errors: READ_ERRORS },
      schema: {
        tags,
        summary: 'List the ISO images of the data pools',
        description:
          'Of pools that no connected node can use nothing is listed, unless datapool names one: then it is an error.',
        querystring: listQuery({
          datapool: filterById('in this data pool'),
          node: filterById('on this node'),
          domain: filterById('a VM that has it in a drive'),
        }),
        response: { 200: listOf(IsoSchema) },
      },
    },
    async request => {
      const { datapool, node, domain, ...query } = request.query;
      const page = parsePage(query, IsoSchema, ORDERINGS);
      const viewer = principalOf(request);
      return listFromArray(request, page, await services.isos.list({ datapool, node, domain }), {
        render: image => permitted('iso', image, viewer),
      });
    },
  );

  app.get(
    '/api/iso/:id/',
    {
      config: { access: 'library.read', errors: READ_ERRORS },
      schema: { tags, summary: 'One ISO image', params: IdParams, response: { 200: ref(IsoSchema) } },
    },
    async request => permitted('iso', await services.isos.get(request.params.id), principalOf(request)),
  );
}

function downloadRoutes(app: App, services: Services): void {
  const tickets = new Tickets();
  const summary = 'The bytes of an ISO image; with Range, one range of them';
  const config = { access: 'library.download', paced: true, errors: BYTES_ERRORS } as const;
  const path = '/api/iso/:id/download/';
  const schema = { tags, summary, params: IdParams };
  const answer = (request: FastifyRequest, reply: FastifyReply, id: string) =>
    answerBytes(services, request, reply, async () => sourceOf(services, await services.isos.get(id)));
  app.get(
    path,
    { config, exposeHeadRoute: false, schema: { ...schema, response: BYTE_ANSWERS } },
    (request, reply) => answer(request, reply, request.params.id),
  );
  app.head(path, { config, schema: { ...schema, hide: true } }, (request, reply) =>
    answer(request, reply, request.params.id),
  );

  app.put(
    path,
    {
      config: { access: 'library.download', unaudited: true, ignoresKey: true, errors: READ_ERRORS },
      schema: {
        tags,
        summary: 'An address that gives the bytes of an ISO image without a login, for a minute',
        params: IdParams,
        response: { 200: ref(IsoSchema) },
      },
    },
    async request => {
      const image = await services.isos.get(request.params.id);
      const ticket = tickets.issue({ id: image.id, authorization: request.headers.authorization! });
      const shown = permitted('iso', image, principalOf(request));
      return { ...shown, download_url: `/api/iso/download/${ticket}/` };
    },
  );

  app.get(
    '/api/iso/download/:ticket/',
    {
      config: {
        access: 'public',
        paced: true,
        errors: [...BYTES_ERRORS, ...LOGIN_ERRORS, 'permission_denied', 'not_found', 'iso_not_found'],
      },
      schema: {
        tags,
        operationId: 'iso_download_by_ticket',
        summary: 'The bytes of an ISO image, by the address that was asked for',
        params: TicketParams,
        response: BYTE_ANSWERS,
      },
    },
    async (request, reply) => {
      const { id, authorization } = tickets.find(request.params.ticket);
      request.headers.authorization = authorization;
      request.principal = await services.tokens.principal(tokenOf(request));
      requirePermission(request.principal, 'library.download');
      return answer(request, reply, id);
    },
  );
}

function sourceOf({ isos }: Services, image: IsoRecord): ByteSource {
  if (image.status !== 'ACTIVE') throw new VirtkeepError('iso_not_found', { id: image.id });
  return {
    name: image.filename,
    tag: `"${image.id}-${image.size}-${Date.parse(image.modified)}"`,
    sizeOf: async () => image.size,
    open: (part, signal) => isos.open(image, part, signal),
  };
}

function announceRoute(app: App, services: Services): void {
  app.put(
    '/api/iso/',
    {
      config: { access: 'library.upload', ignoresKey: true, errors: UPLOAD_ERRORS },
      schema: {
        tags,
        summary: 'Announce an ISO image: the answer says where to send it',
        body: body(newImage, { datapool: STORY.pool, filename: 'debian-12.iso' }),
        response: { 200: ref(IsoSchema) },
      },
    },
    async request => {
      const image = await services.isos.announce(request.body);
      const shown = permitted('iso', image, principalOf(request));
      return { ...shown, upload_url: `/api/iso/${image.id}/upload/` };
    },
  );
}

/** In a scope of their own: their bodies are not read into memory, whatever type they say they are of. */
function uploadRoutes(app: App, services: Services): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
  const config = { access: 'library.upload', errors: UPLOAD_ERRORS } as const;
  const consumes = ['application/octet-stream', 'multipart/form-data'];
  const shared = {
    tags,
    description:
      'The body is the image, or a form with it as its one file. There is nothing under its name before all of it has come, and of an upload that breaks off nothing stays.',
    consumes,
    response: { 200: ref(IsoSchema) },
  };
  app.post(
    '/api/iso/upload/',
    {
      config,
      schema: {
        ...shared,
        operationId: 'iso_upload_new',
        summary: 'Upload an ISO image into a data pool',
        querystring: Type.Object(newImage, { additionalProperties: false }),
      },
    },
    (request, reply) => upload(services, request, reply, request.query),
  );
  app.post(
    '/api/iso/:id/upload/',
    { config, schema: { ...shared, summary: 'Upload an ISO image that was announced', params: IdParams } },
    (request, reply) => upload(services, request, reply, services.isos.announced(request.params.id)),
  );
}

async function upload(
  services: Services,
  request: FastifyRequest,
  reply: FastifyReply,
  image: NewIso,
): Promise<IsoRecord & { permissions: string[] }> {
  const { raw } = request;
  const hungUp = new AbortController();
  whenClosed(reply.raw, () => hungUp.abort());
  whenClosed(
    reply.raw,
    watchRight(services, request, () => raw.destroy()),
  );
  const boundary = boundaryOf(request.headers['content-type'] ?? '');
  const whole = bodyOf(raw, services.config.limits.download_idle_s * 1000);
  const bytes = boundary === undefined ? whole : fileOf(whole, boundary);
  // of a form only about so much is the image
  const sizeBytes = boundary === undefined ? Number(request.headers['content-length'] ?? 0) : 0;
  const viewer = principalOf(request);
  const created = await services.isos.upload(image, { userId: viewer.id, sizeBytes, bytes }, hungUp.signal);
  return permitted('iso', created, viewer);
}
