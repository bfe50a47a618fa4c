/** The bytes of a backup file, or of one of its members. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import Type from 'typebox';
import type { Services } from '../../services/services.ts';
import type { RouteModule } from '../app.ts';
import { answerBytes, BYTE_ANSWERS, type ByteSource } from '../byte-answer.ts';
import { whenClosed } from '../closed.ts';
import { ARCHIVE_READ, NODE_CALL, POOL_READ } from '../node-errors.ts';
import { IdParams } from '../schemas/common.ts';

const DOWNLOAD_ERRORS = [...NODE_CALL, ...POOL_READ, ...ARCHIVE_READ, 'range_not_satisfiable'] as const;

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
  const config = { access: 'library.download', paced: true, errors: DOWNLOAD_ERRORS } as const;
  const schema = {
    tags: ['library'],
    summary: 'The bytes of a backup file; with Range, one range of them',
    description:
      'The file is locked meanwhile, so a reader that stops is cut off after a while (limits.download_idle_s) and goes on with Range.',
    params: IdParams,
    querystring: Query,
  };
  app.get(
    path,
    { config, exposeHeadRoute: false, schema: { ...schema, response: BYTE_ANSWERS } },
    (request, reply) =>
      answer(services, request, reply, { id: request.params.id, member: request.query.member ?? '' }),
  );
  app.head(path, { config, schema: { ...schema, hide: true } }, (request, reply) =>
    answer(services, request, reply, { id: request.params.id, member: request.query.member ?? '' }),
  );
};

function answer(
  services: Services,
  request: FastifyRequest,
  reply: FastifyReply,
  { id, member }: { id: string; member: string },
): Promise<unknown> {
  const { downloads } = services;
  return answerBytes(services, request, reply, async (): Promise<ByteSource> => {
    const download = await downloads.find(id, member);
    whenClosed(reply.raw, await downloads.hold(download));
    return {
      name: download.member || download.row.filename,
      tag: downloads.tagOf(download),
      sizeOf: signal => downloads.sizeOf(download, signal),
      open: (part, signal) => downloads.open(download, part, signal),
    };
  });
}
