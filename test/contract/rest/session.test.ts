/** The login of the pages, and what other pages, frames, forms and links try with it. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { VERSION } from '../../../controller/src/http/openapi.ts';
import { makeRestApp, PASSWORD, type RestApp } from './app.ts';

const NAME = '__Host-virtkeep';
const HOST = 'keep.example:8443';
const OWN = { 'sec-fetch-site': 'same-origin', host: HOST };
const credentials = { username: 'the-operator', password: PASSWORD };

let rest: RestApp;
beforeAll(async () => {
  rest = await makeRestApp();
});
afterAll(() => rest.close());

const call = (method: string, url: string, headers: Record<string, string>, body?: unknown) =>
  rest.call(method, url, { as: null, headers, ...(body === undefined ? {} : { body }) });
const keyOf = ({ body }: { body: { errors: { msg_key: string }[] } }) => body.errors[0]!.msg_key;

/** What a browser keeps of an answer. */
function cookieOf({ headers }: { headers: Record<string, unknown> }): string {
  return String(headers['set-cookie']).split(';')[0]!;
}

async function loggedIn(): Promise<string> {
  return cookieOf(await call('POST', '/api/session/', OWN, credentials));
}

test('a browser logs in, is known by its cookie, prolongs it and logs out', async () => {
  const answer = await call('POST', '/api/session/', OWN, credentials);
  const { body } = answer;
  expect(body).toMatchObject({
    user: { username: 'the-operator' },
    role: 'operator',
    version: VERSION,
  });
  expect(body.permissions).toEqual(expect.arrayContaining(['backup.create', 'domain.read']));
  expect(body.permissions).not.toContain('user.manage');
  expect(body.expires_in).toBeGreaterThan(60);
  const cookie = cookieOf(answer);
  expect(answer.text).not.toContain(cookie.slice(NAME.length + 1));
  expect(String(answer.headers['set-cookie'])).toMatch(
    /^__Host-virtkeep=[^;]+; Max-Age=\d+; Path=\/; Secure; HttpOnly; SameSite=Strict$/,
  );

  const known = await call('GET', '/api/session/', { ...OWN, cookie });
  expect([known.status, known.body.user]).toEqual([200, body.user]);
  expect((await call('GET', '/api/domains/', { ...OWN, cookie })).status).toBe(200);

  const prolonged = await call('POST', '/api/session/refresh/', { ...OWN, cookie }, {});
  const newer = cookieOf(prolonged);
  expect(newer).not.toBe(cookie);
  expect((await call('GET', '/api/session/', { ...OWN, cookie: newer })).status).toBe(200);

  const ended = await call('DELETE', '/api/session/', { ...OWN, cookie: newer });
  expect(String(ended.headers['set-cookie'])).toContain(`${NAME}=; Max-Age=0;`);
  for (const token of [cookie, newer])
    expect(keyOf(await call('GET', '/api/session/', { ...OWN, cookie: token }))).toBe('token_revoked');
});

test('a program is known by its header as before, and is asked for a login where pages are', async () => {
  const known = await rest.call('GET', '/api/session/');
  expect(known.body).toMatchObject({ user: { username: 'the-administrator' }, role: 'administrator' });
  for (const [method, path] of [
    ['POST', '/api/session/refresh/'],
    ['DELETE', '/api/session/'],
  ] as const)
    expect(keyOf(await rest.call(method, path))).toBe('session_required');
});

test('the audit has logins of pages, good and bad ones, without the password', async () => {
  const refused = await call('POST', '/api/session/', OWN, { ...credentials, password: 'a wrong one 1' });
  expect([refused.status, keyOf(refused)]).toEqual([401, 'login_failed']);
  await loggedIn();
  const { body, text } = await rest.call('GET', '/api/audit/?limit=5');
  expect(text).not.toContain('a wrong one');
  expect(body.results.slice(0, 2)).toMatchObject([
    { action: 'POST /api/session/', status: 200, user: { username: 'the-operator' } },
    { action: 'POST /api/session/', status: 401, user: { username: 'the-operator' } },
  ]);
});

describe('the cookie does not count', () => {
  const cases: [string, 'GET' | 'POST', Record<string, string>][] = [
    ['in a fetch of another site', 'GET', { 'sec-fetch-site': 'cross-site', origin: 'https://evil.example' }],
    ['in a form of another site', 'POST', { 'sec-fetch-site': 'cross-site', origin: 'https://evil.example' }],
    ['of a page on another port of this host', 'POST', { 'sec-fetch-site': 'same-site' }],
    ['in a picture on another port of this host', 'GET', { 'sec-fetch-site': 'same-site' }],
    ['in a change that no page makes', 'POST', { 'sec-fetch-site': 'none' }],
    ['of a browser that does not say where it comes from', 'GET', {}],
    ['of another port, told by its origin', 'POST', { origin: 'https://keep.example:9443' }],
    ['of the same host without TLS', 'POST', { origin: `http://${HOST}` }],
    ['of a sandboxed frame', 'POST', { origin: 'null' }],
    ['of a host that begins like ours', 'POST', { origin: `https://${HOST}.evil.example` }],
    ['when the browser says both', 'POST', { origin: `https://${HOST}`, 'sec-fetch-site': 'same-site' }],
  ];
  test.each(cases)('%s', async (_name, method, headers) => {
    const cookie = await loggedIn();
    const path = method === 'GET' ? '/api/domains/' : '/api/session/refresh/';
    const answer = await call(
      method,
      path,
      { host: HOST, cookie, ...headers },
      method === 'GET' ? undefined : {},
    );
    expect([answer.status, keyOf(answer)]).toEqual([401, 'login_required']);
    expect(answer.headers['set-cookie']).toBeUndefined();
  });

  test('beside a header, whatever that is', async () => {
    const cookie = await loggedIn();
    for (const [authorization, key] of [
      ['jwt nonsense', 'token_invalid'],
      ['Basic eA==', 'token_invalid'],
      ['', 'login_required'],
    ] as const)
      expect(keyOf(await call('GET', '/api/session/', { ...OWN, cookie, authorization }))).toBe(key);
    const both = { ...OWN, cookie, authorization: `jwt ${rest.tokens.auditor}` };
    expect((await call('GET', '/api/session/', both)).body.role).toBe('auditor');
  });

  test('when there are two of it', async () => {
    const [first, second] = [await loggedIn(), await loggedIn()];
    for (const cookie of [`${first}; ${second}`, `${NAME}=x; ${first}`, `${NAME}=`])
      expect(keyOf(await call('GET', '/api/session/', { ...OWN, cookie }))).toBe('login_required');
  });

  test('where a token is made for programs', async () => {
    const cookie = await loggedIn();
    expect(keyOf(await call('POST', '/auth/refresh/', { ...OWN, cookie }, {}))).toBe('login_required');
  });
});

test('the cookie counts for a person who types an address, and by the origin where a browser tells no site', async () => {
  const cookie = await loggedIn();
  const typed = await call('GET', '/api/domains/', { host: HOST, cookie, 'sec-fetch-site': 'none' });
  expect(typed.status).toBe(200);
  const told = { host: HOST, cookie, origin: `https://${HOST.toUpperCase()}` };
  expect((await call('POST', '/api/session/refresh/', told, {})).status).toBe(200);
});

test('nobody is logged in by another page, nor by a form', async () => {
  for (const headers of [
    {},
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
    { origin: 'https://evil.example' },
  ]) {
    const answer = await call('POST', '/api/session/', { host: HOST, ...headers }, credentials);
    expect([answer.status, keyOf(answer)]).toEqual([403, 'foreign_origin']);
    expect(answer.headers['set-cookie']).toBeUndefined();
  }
  for (const type of ['application/x-www-form-urlencoded', 'text/plain', 'multipart/form-data; boundary=x']) {
    const form = await rest.call('POST', '/api/session/', {
      as: null,
      raw: 'username=the-operator&password=x',
      headers: { ...OWN, 'content-type': type },
    });
    expect([form.status, keyOf(form)]).toEqual([415, 'unsupported_media_type']);
  }
});

test('a login takes nothing over from the cookie that was there', async () => {
  const planted = await loggedIn();
  const answer = await call(
    'POST',
    '/api/session/',
    { ...OWN, cookie: planted },
    {
      username: 'the-administrator',
      password: PASSWORD,
    },
  );
  expect(cookieOf(answer)).not.toBe(planted);
  expect((await call('GET', '/api/session/', { ...OWN, cookie: planted })).body.role).toBe('operator');
  // and of a cookie that is no token nothing is kept either
  const nonsense = { ...OWN, cookie: `${NAME}=chosen-by-somebody` };
  expect(cookieOf(await call('POST', '/api/session/', nonsense, credentials))).not.toContain('chosen');
});

test('a token in the address is none', async () => {
  const token = (await loggedIn()).slice(NAME.length + 1);
  for (const query of [`token=${token}`, `authorization=jwt%20${token}`, `${NAME}=${token}`, `jwt=${token}`])
    expect((await call('GET', `/api/session/?${query}`, OWN)).status).toBe(401);
});

test('a disabled user is out at once', async () => {
  const user = await rest.services.users.create({ username: 'leaver', password: PASSWORD, role: 'operator' });
  const login = { username: 'leaver', password: PASSWORD };
  const cookie = cookieOf(await call('POST', '/api/session/', OWN, login));
  const as = await rest.session('administrator');
  await rest.call('PUT', `/api/users/${user.id}/`, { as, body: { enabled: false } });
  expect(keyOf(await call('GET', '/api/domains/', { ...OWN, cookie }))).toBe('token_revoked');
});
