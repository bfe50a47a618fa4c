/**
 * Walks the API document and sends bad values to each operation and parameter: never a 500, always the documented
 * envelope (`call` checks it). New routes are covered as soon as they are in the document.
 */
import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { TokenSigner } from '../../../controller/src/auth/jwt.ts';
import type { Operation } from './api-document.ts';
import type { RestApp } from './app.ts';
import {
  BAD_IDS,
  BAD_TEXTS,
  bodySchema,
  type Documented,
  ends,
  expectDocumented,
  goodBody,
  isOpen,
  LONG,
  nothingOf,
  pathFor,
  pathId,
  startDocumented,
} from './bad-input-world.ts';

let rest: RestApp;
let each: Documented['each'];
let operations: Documented['operations'];

beforeAll(async () => {
  ({ rest, each, operations } = await startDocumented());
});

afterAll(() => rest.close());

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
