/** What holds for every route: declared access, closed queries, the idempotency key, documented errors. */
import type { RouteOptions } from 'fastify';
import type { TProperties } from 'typebox';
import Type from 'typebox';
import { errorKeysOf } from './document/error-keys.ts';
import { keepsKey } from './keeps-key.ts';
import { closeQuery } from './query.ts';
import { body, described, GivenUuid } from './schemas/common.ts';

export interface BodySchema {
  type?: string;
  properties?: TProperties;
  additionalProperties?: unknown;
}

/** Of a body that ignores what it does not know (specification 4.1), and where a key means nothing: one that is none is ignored, too. */
const IgnoredKey = Type.Unsafe<unknown>({ description: 'a UUID; anything else is ignored' });

const IdempotencyKey = described(
  GivenUuid,
  'a UUID of your own: the same request with the same key is carried out once, and answers the same',
);

const DOCS_PATH = '/api/docs';
const SESSION_NEEDED =
  'It needs the token of a login: with an integration token, whosever it is, it is refused as `session_required`.';

/** `onRoute` hook. @throws when a route declares no access: such a server must not start. */
export function applyRouteRules(route: RouteOptions): void {
  route.config ??= {};
  if (route.url === DOCS_PATH || route.url.startsWith(`${DOCS_PATH}/`)) {
    route.config.access = 'public';
    return;
  }
  if (route.config.access === undefined) {
    throw new Error(`the route ${String(route.method)} ${route.url} declares no access`);
  }
  closeQuery(route);
  closeBody(route);
  addIdempotencyKey(route);
  documentErrors(route);
  documentSession(route);
}

/** A change that names no fields takes none; routes that read a raw body say so with `consumes`. */
function closeBody(route: RouteOptions): void {
  const changes = [route.method].flat().some(method => method === 'POST' || method === 'PUT');
  if (!changes || route.schema?.body !== undefined || route.schema?.consumes !== undefined) return;
  route.schema!.body = body({}, {});
}

function addIdempotencyKey(route: RouteOptions): void {
  const schema = route.schema?.body as BodySchema | undefined;
  if (schema?.type !== 'object') return;
  const isIgnored = isOpen(schema) || !keepsKey(route.config);
  route.schema!.body = {
    ...schema,
    properties: {
      ...schema.properties,
      idempotency_key: Type.Optional(isIgnored ? IgnoredKey : IdempotencyKey),
    },
  };
}

function documentSession(route: RouteOptions): void {
  if (route.config?.session !== true) return;
  const { description } = route.schema!;
  route.schema!.description = description ? `${description} ${SESSION_NEEDED}` : SESSION_NEEDED;
}

/** Its route ignores the fields that it does not know. */
export function isOpen({ additionalProperties }: BodySchema): boolean {
  return additionalProperties === true;
}

function documentErrors(route: RouteOptions): void {
  route.schema!['x-error-keys'] = errorKeysOf(route);
  if (route.config?.access !== 'public') route.schema!.security = [{ token: [] }];
}
