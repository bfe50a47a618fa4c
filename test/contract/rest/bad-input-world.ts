/** The API document as a list of calls, to which tests send what nobody should. */
import { expect } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { type ApiDocument, type JsonSchema, type Operation, operationsOf } from './api-document.ts';
import { type Answer, makeRestApp, PASSWORD, type RestApp } from './app.ts';
import { SEED, seedNode } from './seed.ts';

export const LONG = 'x'.repeat(300);
const NOTHING = newId();
const UNICODE = '名前-é-🙂-\u202e';
export const BAD_TEXTS = [
  '',
  ' ',
  '../../etc/passwd',
  'a/b',
  '%00',
  UNICODE,
  LONG,
  "' OR 1=1 --",
  '{{7*7}}',
  '\u0000',
];
export const BAD_IDS = ['abc', `${newId()}x`, '..%2f..%2fetc', '%00', '%F0%9F%99%82', LONG];
export const BAD_VALUES: unknown[] = [
  null,
  0,
  -1,
  1.5,
  1e300,
  true,
  [],
  {},
  [null],
  { a: { b: [] } },
  ...BAD_TEXTS,
];
/** A stream that was opened never ends by itself. */
const ENDLESS = new Set(['/api/events/stream/']);
const LOGOUT = 'DELETE /api/session/';

export interface Documented {
  rest: RestApp;
  operations: readonly Operation[];
  /** Does this with each of these, of which there must be some. */
  each: (
    filter: (operation: Operation) => boolean,
    work: (operation: Operation) => Promise<void>,
  ) => Promise<void>;
}

/** A controller with something of each kind, and all that its document says can be called. */
export async function startDocumented(): Promise<Documented> {
  const limits = { requests_per_minute: 10_000_000, body_bytes: 65_536 };
  const rest = await makeRestApp({ limits }, seedNode);
  // a session gets everywhere, an integration token does not
  const credentials = { username: 'the-administrator', password: PASSWORD };
  rest.tokens.administrator = (await rest.call('POST', '/auth/', { as: null, body: credentials })).body.token;
  const operations = operationsOf(rest.app.swagger() as unknown as ApiDocument);
  return {
    rest,
    operations,
    each: async (filter, work) => {
      const chosen = operations.filter(filter);
      expect(chosen.length).toBeGreaterThan(0);
      for (const operation of chosen) await work(operation);
    },
  };
}

/** The path with ids of things that exist, by what the path is about. */
export function pathFor(operation: Operation, id?: string): string {
  // users alone have numbers
  const path = operation.path.replace('{session}', NOTHING);
  return path.replace(/\{[^}]+\}/g, id ?? pathId(operation));
}

export function pathId({ path }: Operation): string {
  return path.startsWith('/api/domains/')
    ? SEED.domain
    : path.startsWith('/api/library/')
      ? SEED.file
      : path.startsWith('/api/data-pools/')
        ? SEED.pool
        : path.startsWith('/api/nodes/')
          ? SEED.node
          : nothingOf(path);
}

/** An id of nothing. */
export function nothingOf(path: string): string {
  return path.startsWith('/api/users/') ? '999999' : NOTHING;
}

/** What may never happen, whatever is sent. */
export function expectDocumented(answer: Answer, what: string): void {
  if (answer.status === 500) throw new Error(`500 for ${what}: ${answer.text}`);
  if (answer.status < 400) return;
  const envelope = answer.body as { errors: { code: string }[] };
  for (const { code } of envelope.errors) {
    const expected = code.startsWith('499') ? '409' : code.slice(0, 3);
    if (expected !== String(answer.status))
      throw new Error(`${what}: code ${code} with status ${answer.status}`);
  }
  // a matcher for each of some ten thousand answers takes longer than many of them
  if (/\bat .*\.[tj]s:\d+/.test(answer.text))
    throw new Error(`${what}: a place in the program: ${answer.text}`);
}

export function bodySchema(operation: Operation): JsonSchema | undefined {
  return operation.spec.requestBody?.content['application/json']?.schema;
}

/** A body that fits the schema, of things that exist where a name tells what is meant. */
export function goodBody(schema: JsonSchema): Record<string, unknown> {
  const known: Record<string, unknown> = { ...SEED, datapool: SEED.pool, entity_ids: [SEED.domain] };
  return Object.fromEntries(
    (schema.required ?? []).map(name => {
      const property = schema.properties?.[name];
      if (known[name] !== undefined) return [name, known[name]];
      if (property?.enum !== undefined) return [name, property.enum[0]];
      if (property?.type === 'boolean') return [name, true];
      if (property?.type === 'integer') return [name, 1];
      if (property?.type === 'array') return [name, []];
      return [name, property?.pattern?.startsWith('^[0-9a-f') ? newId() : 'some-text-1'];
    }),
  );
}

export const isOpen = ({ spec }: Operation) => spec.security?.length === 0;
/** Nor is the login ended by which all of them are tried. */
export const ends = ({ method, path }: Operation) => !ENDLESS.has(path) && `${method} ${path}` !== LOGOUT;
export const hasBody = (operation: Operation) => bodySchema(operation) !== undefined && !isOpen(operation);
