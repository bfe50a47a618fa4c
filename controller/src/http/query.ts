/**
 * Query strings are texts: integers are read here, strictly, and only where the route's schema says integer. Clients of the API
 * family send `async` with every call; where it means nothing it is ignored, and so is what a call does not know. Only a list
 * refuses unknown fields: a filter that is not there would answer everything.
 */
import type { RouteOptions } from 'fastify';

const INTEGER = /^-?[0-9]{1,15}$/;

/** Sent with everything by clients that want their tasks at once. */
const MEANT_FOR_TASKS = 'async';

interface ObjectSchema {
  properties?: Record<string, { type?: string }>;
}

/** Takes away what the route does not know and need not refuse. */
export function dropUnknown(query: Record<string, unknown>, schema: unknown): void {
  const { properties = {} } = (schema ?? {}) as ObjectSchema;
  const isList = Object.hasOwn(properties, 'limit');
  for (const name of Object.keys(query)) {
    if (Object.hasOwn(properties, name)) continue;
    if (!isList || name === MEANT_FOR_TASKS) delete query[name];
  }
}

/** Turns the texts of integer parameters, of a query or a path, into numbers; what is no integer stays a text, and validation says so. */
export function readIntegers(query: Record<string, unknown>, schema: unknown): void {
  for (const [name, property] of Object.entries((schema as ObjectSchema | undefined)?.properties ?? {})) {
    const text = query[name];
    if (property.type === 'integer' && typeof text === 'string' && INTEGER.test(text)) {
      query[name] = Number(text);
    }
  }
}

/** A route that names no query parameters takes none. */
export function closeQuery(route: RouteOptions): void {
  route.schema ??= {};
  route.schema.querystring ??= { type: 'object', properties: {}, additionalProperties: false };
}
