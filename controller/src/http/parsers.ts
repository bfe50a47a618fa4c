/** Request bodies: JSON only (routes that take something else bring their own parser). */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyRequest } from 'fastify';
import type { App } from './app.ts';

/** An empty body is `{}`, since most actions have optional fields only. Keys that change prototypes are refused. */
export function registerParsers(app: App): void {
  app.removeAllContentTypeParsers();
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser(
    'application/json',
    { parseAs: 'string' },
    (request: FastifyRequest, text: string, done) => {
      if (text.trim() === '') return done(null, {});
      return parse(request, text, (error, value) =>
        error ? done(new VirtkeepError('broken_json', { reason: shortReason(error) })) : done(null, value),
      );
    },
  );
  app.addHook('preValidation', async request => {
    if (request.body === undefined && request.routeOptions.schema?.body !== undefined) request.body = {};
  });
}

/** Newer engines quote the text they could not read; a body may hold a password. */
function shortReason(error: Error): string {
  return error.message.split(/[,"]/)[0]!.trim().slice(0, 100) || 'it cannot be read';
}
