/** Query strings are texts: integers are read here, strictly, and only where the route's schema says integer. */
import type { RouteOptions } from 'fastify';

const INTEGER = /^-?[0-9]{1,15}$/;

interface ObjectSchema {
  properties?: Record<string, { type?: string }>;
}

/** Turns the texts of integer parameters into numbers; what is no integer stays a text, and validation says so. */
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
