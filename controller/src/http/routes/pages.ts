/** The management pages, below `/ui/`. Anybody may load them; what they show is asked of the API, by whom is logged in. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { RouteModule } from '../app.ts';
import { PAGES_DIR, type PageFile, packedFor, readPages } from '../pages.ts';

const config = { access: 'public' } as const;
/** They are no calls of the API. */
const schema = { hide: true } as const;
const FOR_EVER = 'public, max-age=31536000, immutable';
/** Asked for each time, and sent only when it is another one. */
const ASKED = 'no-cache';

/** @param dir where the built pages are; read when the server is made. */
export function pageRoutes(dir = PAGES_DIR): RouteModule {
  return app => {
    const files = readPages(dir);
    /** Whatever the address is: the pages look at it themselves. */
    const shell = async (request: FastifyRequest, reply: FastifyReply) => {
      const index = files.get('index.html');
      if (index === undefined) throw new VirtkeepError('pages_not_built');
      return sendPage(request, reply, index);
    };
    app.get('/', { config, schema }, async (_request, reply) => reply.redirect('/ui/', 302));
    app.get('/ui/', { config, schema }, shell);
    app.get('/ui/*', { config, schema }, shell);
    app.get<{ Params: { '*': string } }>('/ui/assets/*', { config, schema }, async (request, reply) => {
      const file = files.get(`assets/${request.params['*']}`);
      if (file === undefined) throw new VirtkeepError('not_found', { path: request.url.slice(0, 200) });
      return sendPage(request, reply, file);
    });
  };
}

function sendPage(request: FastifyRequest, reply: FastifyReply, file: PageFile): FastifyReply {
  reply.header('cache-control', file.isImmutable ? FOR_EVER : ASKED);
  reply.header('etag', file.etag).header('vary', 'accept-encoding');
  if (request.headers['if-none-match'] === file.etag) return reply.code(304).send();
  const [encoding, bytes] = packedFor(file, request.headers['accept-encoding']) ?? [undefined, file.bytes];
  if (encoding !== undefined) reply.header('content-encoding', encoding);
  return reply.type(file.type).send(bytes);
}
