/** Request bodies: JSON only (routes that take something else bring their own parser). */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { parseExact } from '@virtkeep/shared/exact-json';
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
      return parse(request, text, (error, value) => {
        if (error) return done(new VirtkeepError('broken_json', { reason: brokenReason(text) }));
        return done(null, request.routeOptions.config.exactIntegers ? parseExact(text) : value);
      });
    },
  );
  app.addHook('preValidation', async request => {
    if (request.body === undefined && request.routeOptions.schema?.body !== undefined) request.body = {};
  });
}

/** Where it breaks; never the text around, since a body may hold a password. */
function brokenReason(text: string): string {
  try {
    JSON.parse(text);
    return 'it has a key that would change a prototype';
  } catch (error) {
    const position = /position (\d+)/.exec((error as Error).message)?.[1];
    return position === undefined ? 'it ends too early' : `it breaks at character ${position}`;
  }
}
