/**
 * Walks the API document and sends bad values to each operation and parameter: never a 500, always the documented
 * envelope (`call` checks it). New routes are covered as soon as they are in the document.
 */
import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { TokenSigner } from '../../../controller/src/auth/jwt.ts';
import { type ApiDocument, type JsonSchema, type Operation, operationsOf } from './api-document.ts';
import { type Answer, makeRestApp, PASSWORD, type RestApp } from './app.ts';
import { SEED, seedNode } from './seed.ts';

const LONG = 'x'.repeat(300);
const NOTHING = newId();
const UNICODE = '名前-é-🙂-\u202e';
const BAD_TEXTS = [
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
const BAD_IDS = ['abc', `${newId()}x`, '..%2f..%2fetc', '%00', '%F0%9F%99%82', LONG];
const BAD_VALUES: unknown[] = [null, 0, -1, 1.5, 1e300, true, [], {}, [null], { a: { b: [] } }, ...BAD_TEXTS];
/** A stream that was opened never ends by itself. */
const ENDLESS = new Set(['/api/events/stream/']);
const LOGOUT = 'DELETE /api/session/';

let rest: RestApp;
let operations: Operation[];

beforeAll(async () => {
  rest = await makeRestApp({ limits: { requests_per_minute: 10_000_000, body_bytes: 65_536 } }, seedNode);
  // a session gets everywhere, an integration token does not
  const credentials = { username: 'the-administrator', password: PASSWORD };
  rest.tokens.administrator = (await rest.call('POST', '/auth/', { as: null, body: credentials })).body.token;
  operations = operationsOf(rest.app.swagger() as unknown as ApiDocument);
});

afterAll(() => rest.close());

/** The path with ids of things that exist, by what the path is about. */
function pathFor(operation: Operation, id?: string): string {
  // users alone have numbers
  const path = operation.path.replace('{session}', NOTHING);
  return path.replace(/\{[^}]+\}/g, id ?? pathId(operation));
}

function pathId({ path }: Operation): string {
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
function nothingOf(path: string): string {
  return path.startsWith('/api/users/') ? '999999' : NOTHING;
}

/** What may never happen, whatever is sent. */
function expectDocumented(answer: Answer, what: string): void {
  if (answer.status === 500) throw new Error(`500 for ${what}: ${answer.text}`);
  if (answer.status < 400) return;
  const envelope = answer.body as { errors: { code: string }[] };
  for (const { code } of envelope.errors) {
    const expected = code.startsWith('499') ? '409' : code.slice(0, 3);
    if (expected !== String(answer.status))
      throw new Error(`${what}: code ${code} with status ${answer.status}`);
  }
  expect(answer.text).not.toMatch(/\bat .*\.[tj]s:\d+/);
}

function bodySchema(operation: Operation): JsonSchema | undefined {
  return operation.spec.requestBody?.content['application/json']?.schema;
}

/** A body that fits the schema, of things that exist where a name tells what is meant. */
function goodBody(schema: JsonSchema): Record<string, unknown> {
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

async function each(
  filter: (operation: Operation) => boolean,
  work: (operation: Operation) => Promise<void>,
) {
  const chosen = operations.filter(filter);
  expect(chosen.length).toBeGreaterThan(0);
  for (const operation of chosen) await work(operation);
}

const isOpen = ({ spec }: Operation) => spec.security?.length === 0;
/** Nor is the login ended by which all of them are tried. */
const ends = ({ method, path }: Operation) => !ENDLESS.has(path) && `${method} ${path}` !== LOGOUT;
const hasBody = (operation: Operation) => bodySchema(operation) !== undefined && !isOpen(operation);

test('the document is worth walking', () => {
  expect(operations.length).toBeGreaterThan(20);
});

describe('tokens', () => {
  const base64 = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const claims = () => ({
    user_id: rest.userIds.administrator,
    username: 'the-administrator',
    orig_iat: Math.floor(Date.now() / 1000),
    exp: Math.floor(Date.now() / 1000) + 3600,
    jti: newId(),
  });
  /** A token with any header, signed with the server's own key: only the header is wrong. */
  const signed = (header: object, hash = 'sha256') => {
    const text = `${base64(header)}.${base64(claims())}`;
    return `${text}.${createHmac(hash, Buffer.alloc(64, 7)).update(text).digest('base64url')}`;
  };
  const issue = (signer: TokenSigner, expiresOn: Date) =>
    signer.sign({
      userId: rest.userIds.administrator,
      username: 'the-administrator',
      jti: newId(),
      family: '',
      origIat: new Date(),
      expiresOn,
      integration: false,
    });

  async function expectRefused(header: string | null, msgKey: string): Promise<void> {
    await each(
      operation => !isOpen(operation),
      async operation => {
        const as = header === null ? null : { header };
        const answer = await rest.call(operation.method, pathFor(operation), { as, body: {} });
        expect([operation.path, answer.status, answer.body.errors[0].msg_key]).toEqual([
          operation.path,
          401,
          msgKey,
        ]);
      },
    );
  }

  test('the helper signs as the server does', async () => {
    const header = `jwt ${signed({ alg: 'HS256', typ: 'JWT' })}`;
    expect((await rest.call('GET', '/api/tasks/', { as: { header } })).status).toBe(200);
  });

  test('none at all', () => expectRefused(null, 'login_required'));
  test.each(['jwt', 'jwt abc', 'Basic YTpi', 'jwt a.b.c', `jwt ${LONG.repeat(20)}`, 'eyJhbGciOiJIUzI1NiJ9'])(
    'garbage %#',
    header => expectRefused(header, 'token_invalid'),
  );
  test('expired', async () => {
    const header = `jwt ${await issue(rest.signer, new Date(Date.now() - 5000))}`;
    await expectRefused(header, 'token_expired');
    expect((await rest.call('GET', '/api/tasks/', { as: { header } })).body.detail).toBe(
      'Signature has expired.',
    );
  });
  test('signed with a foreign key', async () => {
    const foreign = await issue(new TokenSigner(Buffer.alloc(64, 8)), new Date(Date.now() + 60_000));
    await expectRefused(`jwt ${foreign}`, 'token_invalid');
  });
  test('with the algorithm none, another one, or another typ', async () => {
    const none = `${base64({ alg: 'none', typ: 'JWT' })}.${base64(claims())}.`;
    const others = [
      none,
      `${signed({ alg: 'none', typ: 'JWT' })}`,
      signed({ alg: 'HS512', typ: 'JWT' }, 'sha512'),
      signed({ alg: 'HS256', typ: 'other' }),
      signed({ alg: 'HS256' }),
      signed({ alg: 'HS256', typ: 'JWT', crit: ['b64'], b64: false }),
    ];
    for (const token of others) await expectRefused(`jwt ${token}`, 'token_invalid');
  });
  test('of an unknown user', async () => {
    const token = await rest.signer.sign({
      userId: newId(),
      username: 'nobody',
      jti: newId(),
      family: '',
      origIat: new Date(),
      expiresOn: new Date(Date.now() + 60_000),
      integration: false,
    });
    await expectRefused(`jwt ${token}`, 'token_revoked');
  });
});

describe('paths', () => {
  test('bad ids', () =>
    each(
      ({ path }) => path.includes('{'),
      async operation => {
        for (const id of BAD_IDS) {
          const answer = await rest.call(operation.method, pathFor(operation, id), { body: {} });
          expectDocumented(answer, `${operation.method} ${operation.path} ${id}`);
          expect([400, 404]).toContain(answer.status);
        }
      },
    ));

  test('ids in capitals are the same ids', () =>
    each(
      operation => operation.method === 'GET' && operation.path.includes('{') && ends(operation),
      async operation => {
        const [plain, capitals] = await Promise.all(
          [pathFor(operation), pathFor(operation, pathId(operation).toUpperCase())].map(path =>
            rest.call('GET', path),
          ),
        );
        expect([operation.path, capitals!.status]).toEqual([operation.path, plain!.status]);
        if (plain!.status === 200) expect(capitals!.text).toBe(plain!.text);
      },
    ));

  test('ids of nothing', () =>
    each(
      operation => operation.path.includes('{') && ends(operation),
      async operation => {
        const body = goodBody(bodySchema(operation) ?? {});
        const answer = await rest.call(operation.method, pathFor(operation, nothingOf(operation.path)), {
          ...(operation.method === 'GET' ? {} : { body }),
        });
        expectDocumented(answer, `${operation.method} ${operation.path}`);
        // an upload may be one of a node that is away, and is not looked for without the header of tus
        const isLawful =
          operation.path.startsWith('/api/library/upload/') && [412, 503].includes(answer.status);
        if (!isLawful) expect([operation.path, answer.status]).toEqual([operation.path, 404]);
      },
    ));

  test('methods that are not served', () =>
    each(
      () => true,
      async operation => {
        const served = operations.filter(({ path }) => path === operation.path).map(({ method }) => method);
        for (const method of ['DELETE', 'PATCH'].filter(one => !served.includes(one))) {
          const answer = await rest.call(method, pathFor(operation), { body: {} });
          expect([operation.path, answer.status]).toEqual([operation.path, 405]);
          expect(String(answer.headers.allow).split(', ')).toContain(operation.method);
        }
      },
    ));
});

describe('queries', () => {
  test('unknown parameters are named by lists', () =>
    each(
      operation => queryNames(operation).includes('limit'),
      async operation => {
        const url = `${pathFor(operation)}?colour=blue&__proto__=1`;
        const answer = await rest.call(operation.method, url);
        expectDocumented(answer, url);
        expect([operation.path, answer.status]).toEqual([operation.path, 400]);
        expect(answer.body.errors).toContainEqual(
          expect.objectContaining({ msg_key: 'unknown_field', field: 'colour' }),
        );
      },
    ));

  test('parameters without a meaning are ignored, and async on lists, too', () =>
    each(
      operation => ends(operation),
      async operation => {
        const isList = queryNames(operation).includes('limit');
        const url = `${pathFor(operation)}?async=1${isList ? '' : '&colour=blue&__proto__=1'}`;
        const body = goodBody(bodySchema(operation) ?? {});
        const answer = await rest.call(operation.method, url, operation.method === 'GET' ? {} : { body });
        expectDocumented(answer, url);
        const keys = (answer.body?.errors ?? []).map((error: { msg_key: string }) => error.msg_key);
        expect([operation.path, keys]).toEqual([
          operation.path,
          expect.not.arrayContaining(['unknown_field']),
        ]);
      },
    ));

  test('bad values of each parameter', () =>
    each(
      operation => ends(operation) && queryNames(operation).length > 0,
      async operation => {
        const body = goodBody(bodySchema(operation) ?? {});
        for (const name of queryNames(operation)) {
          const values = [...BAD_TEXTS, '-1', '1e9', '99999999999999999999', 'NaN', 'true', `1&${name}=2`];
          for (const value of values) {
            const text = value.startsWith('1&') ? value : encodeURIComponent(value);
            const url = `${pathFor(operation)}?${name}=${text}`;
            const answer = await rest.call(operation.method, url, operation.method === 'GET' ? {} : { body });
            expectDocumented(answer, url);
          }
        }
      },
    ));

  function queryNames({ spec }: Operation): string[] {
    return (spec.parameters ?? []).filter(parameter => parameter.in === 'query').map(({ name }) => name);
  }
});

describe('bodies', () => {
  test('unknown fields are all named', () =>
    each(hasBody, async operation => {
      const body = { ...goodBody(bodySchema(operation)!), colour: 1, taste: { deep: true } };
      const answer = await rest.call(operation.method, pathFor(operation), { body });
      if (ignoresUnknown(operation)) return expectDocumented(answer, operation.path);
      expect([operation.path, answer.status]).toEqual([operation.path, 400]);
      const fields = answer.body.errors.map((error: { field?: string }) => error.field);
      expect(fields).toEqual(expect.arrayContaining(['colour', 'taste']));
    }));

  test('missing fields are all named', () =>
    each(
      operation => (bodySchema(operation)?.required ?? []).length > 0,
      async operation => {
        const answer = await rest.call(operation.method, pathFor(operation), { body: {} });
        expect([operation.path, answer.status]).toEqual([operation.path, 400]);
        const fields = answer.body.errors.map((error: { field?: string }) => error.field);
        expect(fields).toEqual(expect.arrayContaining(bodySchema(operation)!.required!));
      },
    ));

  test('each field with values of every kind', () =>
    each(
      operation => bodySchema(operation) !== undefined,
      async operation => {
        const schema = bodySchema(operation)!;
        for (const name of Object.keys(schema.properties ?? {})) {
          for (const value of BAD_VALUES) {
            const body = { ...goodBody(schema), [name]: value };
            const answer = await rest.call(operation.method, pathFor(operation), { body });
            expectDocumented(
              answer,
              `${operation.method} ${operation.path} ${JSON.stringify({ [name]: value })}`,
            );
          }
        }
      },
    ));

  test('broken JSON, and JSON that is no object', () =>
    each(hasBody, async operation => {
      for (const raw of [
        '{',
        '{"a":',
        '{"a":1,}',
        'nonsense',
        '"text"',
        '[]',
        '1',
        'null',
        '{"__proto__":{"x":1}}',
      ]) {
        const answer = await rest.call(operation.method, pathFor(operation), { raw });
        expect([operation.path, raw, answer.status]).toEqual([operation.path, raw, 400]);
        expectDocumented(answer, `${operation.path} ${raw}`);
      }
      const bytes = Buffer.from([0xff, 0xfe, 0x00, 0x7b]);
      expect((await rest.call(operation.method, pathFor(operation), { raw: bytes })).status).toBe(400);
    }));

  test('too large, too deep, or of another type', () =>
    each(hasBody, async operation => {
      const path = pathFor(operation);
      const huge = await rest.call(operation.method, path, {
        raw: JSON.stringify({ a: 'x'.repeat(70_000) }),
      });
      expect([operation.path, huge.status, huge.body.errors[0].msg_key]).toEqual([
        operation.path,
        413,
        'body_too_large',
      ]);
      const deep = await rest.call(operation.method, path, {
        raw: `${'{"a":'.repeat(8000)}1${'}'.repeat(8000)}`,
      });
      expectDocumented(deep, `${operation.path} deep`);
      for (const type of ['text/plain', 'application/xml', 'multipart/form-data; boundary=x', 'nonsense']) {
        const answer = await rest.call(operation.method, path, {
          raw: '{}',
          headers: { 'content-type': type },
        });
        expect([operation.path, type, answer.status]).toEqual([operation.path, type, 415]);
      }
    }));

  /** The specification's exception: bodies of disk attachment. */
  function ignoresUnknown({ path }: Operation): boolean {
    return path.endsWith('/attach-vdisk/') || path.endsWith('/detach-vdisk/');
  }
});

describe('roles', () => {
  test('an auditor changes nothing', () =>
    each(
      operation => operation.method !== 'GET' && !isOpen(operation),
      async operation => {
        const body = goodBody(bodySchema(operation) ?? {});
        const answer = await rest.call(operation.method, pathFor(operation), { as: 'auditor', body });
        expectDocumented(answer, operation.path);
        const own = ['/api/tasks/check/', '/api/domains/show-backup/', '/api/scheduled-tasks/preview/'];
        if (!own.includes(operation.path)) expect([403, 404]).toContain(answer.status);
      },
    ));
});
