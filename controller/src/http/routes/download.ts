/** The bytes of a backup file, or of one of its members: with Range, so that a broken download goes on where it was. */
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyReply, FastifyRequest } from 'fastify';
import Type from 'typebox';
import type { Download } from '../../services/backups/downloads.ts';
import type { Services } from '../../services/services.ts';
import type { RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { watchRight } from '../auth.ts';
import { whenClosed } from '../closed.ts';
import { paced } from '../paced.ts';
import { type ByteRange, parseRange } from '../range.ts';
import { IdParams } from '../schemas/common.ts';
import { UNBUFFERED } from '../unbuffered.ts';

const WHOLE = { offset: 0, length: 0 };
const BINARY = 'application/octet-stream';
const Bytes = Type.Unsafe<unknown>({ type: 'string', format: 'binary' });

const Query = Type.Object(
  {
    member: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 1024,
        description: 'one member of the archive, uncompressed; default: the whole file as it is stored',
      }),
    ),
  },
  { additionalProperties: false },
);

export const downloadRoutes: RouteModule = (app, services) => {
  const path = '/api/library/:id/download/';
  const config = { access: 'library.download', paced: true } as const;
  const schema = {
    tags: ['library'],
    summary: 'The bytes of a backup file; with Range, one range of them',
    description:
      'The file is locked meanwhile, so a reader that stops is cut off after a while (limits.download_idle_s) and goes on with Range.',
    params: IdParams,
    querystring: Query,
  };
  const response = {
    200: { description: 'all of them', content: { [BINARY]: { schema: Bytes } } },
    206: { description: 'the range that was asked for', content: { [BINARY]: { schema: Bytes } } },
  };
  app.get(path, { config, exposeHeadRoute: false, schema: { ...schema, response } }, (request, reply) =>
    answer(services, request, reply, { id: request.params.id, member: request.query.member ?? '' }),
  );
  app.head(path, { config, schema: { ...schema, hide: true } }, (request, reply) =>
    answer(services, request, reply, { id: request.params.id, member: request.query.member ?? '' }),
  );
};

async function answer(
  services: Services,
  request: FastifyRequest,
  reply: FastifyReply,
  { id, member }: { id: string; member: string },
): Promise<unknown> {
  const hungUp = new AbortController();
  const leave = services.downloads.enter(principalOf(request).id);
  whenClosed(reply.raw, () => {
    hungUp.abort();
    leave();
  });
  const download = await services.downloads.find(id, member);
  const release = await services.downloads.hold(download);
  whenClosed(reply.raw, release);
  const tag = services.downloads.tagOf(download);
  const wanted = rangeHeader(request, tag);
  const head = request.method === 'HEAD';
  const asked =
    head || wanted !== undefined ? await services.downloads.sizeOf(download, hungUp.signal) : undefined;
  const range = asked === undefined ? undefined : parseRange(wanted, asked);
  if (range === null) {
    reply.header('content-range', `bytes */${asked}`);
    throw new VirtkeepError('range_not_satisfiable', { range: wanted ?? '', size: asked ?? 0 });
  }
  if (head) {
    describe(reply, download, tag, { size: asked, range });
    return reply.send();
  }
  const part = range ? { offset: range.first, length: range.last - range.first + 1 } : WHOLE;
  const { size, bytes } = await services.downloads.open(download, part, hungUp.signal);
  describe(reply, download, tag, { size, range });
  // what ends is gone on with by Range, with a new token or as another role
  whenClosed(
    reply.raw,
    watchRight(services, request, () => reply.raw.destroy()),
  );
  const idleMs = services.config.limits.download_idle_s * 1000;
  return reply.send(Readable.from(paced(bytes, reply.raw, idleMs), { objectMode: false }));
}

/** Length and ranges, where the size is known; else the answer is chunked and cannot be resumed. */
function describe(
  reply: FastifyReply,
  { member, row }: Download,
  tag: string,
  { size, range }: { size: number | undefined; range: ByteRange | undefined },
): void {
  const name = member || row.filename;
  reply.headers(UNBUFFERED).type(BINARY).header('content-disposition', disposition(name));
  reply.header('etag', tag);
  reply.header('accept-ranges', size === undefined ? 'none' : 'bytes');
  if (size === undefined) return;
  reply.header('content-length', range ? range.last - range.first + 1 : size);
  if (range) reply.code(206).header('content-range', `bytes ${range.first}-${range.last}/${size}`);
}

/** The range asked for, unless it is of bytes that have changed since (If-Range). */
function rangeHeader(request: FastifyRequest, tag: string): string | undefined {
  const condition = request.headers['if-range'];
  return condition === undefined || condition === tag ? request.headers.range : undefined;
}

/** RFC 6266: the name as it is for clients that can read it, and without anything odd for those that cannot. */
function disposition(path: string): string {
  const name = basename(path);
  const plain = name.replace(/[^\w.-]/g, '_');
  const encoded = encodeURIComponent(name).replace(/['()*]/g, c => `%${c.charCodeAt(0).toString(16)}`);
  return `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`;
}
