/**
 * Ids as clients write them: a UUID in capitals is the same one, and an empty optional id is none. They are made lower case
 * before validation, where the route's schema says that an id stands, so that everything behind knows one spelling.
 */
import { GIVEN_UUID_PATTERN } from './schemas/common.ts';

const GIVEN_UUID = new RegExp(GIVEN_UUID_PATTERN);
const UUIDS_OF_PATH = new RegExp(`(?<=/)${GIVEN_UUID_PATTERN.slice(1, -1)}(?=/|$)`, 'g');

interface Schema {
  pattern?: string;
  required?: readonly string[];
  properties?: Record<string, Schema>;
  items?: Schema;
  anyOf?: readonly Schema[];
}

/** Makes the ids of an object and of the objects in it lower case, and takes empty ones away that may be absent; everything else stays as it is. */
export function readIds(given: unknown, schema: unknown): void {
  if (typeof given !== 'object' || given === null) return;
  const { properties = {}, required = [] } = (schema ?? {}) as Schema;
  const values = given as Record<string, unknown>;
  for (const [name, property] of Object.entries(properties)) {
    if (!Object.hasOwn(values, name)) continue;
    if (isId(property)) {
      if (values[name] === '' && !required.includes(name)) delete values[name];
      else values[name] = lowerId(values[name]);
    } else if (property.items && isId(property.items) && Array.isArray(values[name])) {
      values[name] = values[name].map(lowerId);
    } else {
      readIds(values[name], property);
    }
  }
}

/** The path of a request with its ids in lower case. */
export function pathWithIds(path: string): string {
  return path.replace(UUIDS_OF_PATH, id => id.toLowerCase());
}

function isId({ pattern, anyOf }: Schema): boolean {
  return pattern === GIVEN_UUID_PATTERN || (anyOf?.some(isId) ?? false);
}

function lowerId(value: unknown): unknown {
  return typeof value === 'string' && GIVEN_UUID.test(value) ? value.toLowerCase() : value;
}
