/** The management pages as files: who gets them, how long they may be kept, and what an installation without them says. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { ROUTES } from '../../../controller/src/http/routes/index.ts';
import { pageRoutes } from '../../../controller/src/http/routes/pages.ts';
import { makeRestApp, type RestApp } from './app.ts';

let dir: string;
let built: RestApp;
let bare: RestApp;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'virtkeep-pages-'));
  mkdirSync(join(dir, 'assets'));
  writeFileSync(join(dir, 'index.html'), '<!doctype html><title>pages</title>');
  writeFileSync(join(dir, 'assets', 'index-AbCd1234.js'), 'let a;');
  writeFileSync(join(dir, 'assets', 'index-AbCd1234.js.br'), 'packed');
  writeFileSync(join(dir, 'assets', 'theme.js'), 'let t;');
  const withPages = (pages: string) => ({ routes: [...ROUTES.slice(0, -1), pageRoutes(pages)] });
  built = await makeRestApp({}, undefined, withPages(dir));
  bare = await makeRestApp({}, undefined, withPages(join(dir, 'nowhere')));
});
afterAll(async () => {
  await built.close();
  await bare.close();
  rmSync(dir, { recursive: true });
});

const get = (url: string, headers: Record<string, string> = {}) =>
  built.app.inject({ method: 'GET', url, headers });

test('the root leads to the pages, every address below them is theirs, and nobody needs a login for it', async () => {
  const root = await get('/');
  expect([root.statusCode, root.headers.location]).toEqual([302, '/ui/']);
  for (const url of ['/ui', '/ui/', '/ui/vms', '/ui/vms/1/backups?x=1']) {
    const page = await get(url);
    expect([url, page.statusCode, page.body]).toEqual([url, 200, '<!doctype html><title>pages</title>']);
    expect(page.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(page.headers['cache-control']).toBe('no-cache');
    expect(page.headers['content-security-policy']).toContain("require-trusted-types-for 'script'");
    expect(page.headers['x-frame-options']).toBe('DENY');
    expect(page.headers['x-content-type-options']).toBe('nosniff');
  }
});

test('an answer of the API may load and run nothing', async () => {
  const { headers } = await get('/api/controllers/check/');
  expect(headers['content-security-policy']).toMatch(/^default-src 'none'/);
});

test('what never changes is kept for ever, the rest is asked for and not sent again', async () => {
  const script = await get('/ui/assets/index-AbCd1234.js', { 'accept-encoding': 'gzip, br' });
  expect(script.headers).toMatchObject({
    'cache-control': 'public, max-age=31536000, immutable',
    'content-encoding': 'br',
    'content-type': 'text/javascript; charset=utf-8',
    vary: 'accept-encoding',
  });
  expect(script.body).toBe('packed');
  const theme = await get('/ui/assets/theme.js');
  expect(theme.headers['cache-control']).toBe('no-cache');
  const again = await get('/ui/assets/theme.js', { 'if-none-match': String(theme.headers.etag) });
  expect([again.statusCode, again.body]).toEqual([304, '']);
});

test('only what was built is there', async () => {
  for (const name of [
    'nothing.js',
    '../index.html',
    '%2e%2e/%2e%2e/package.json',
    '..%2f..%2fpackage.json',
    'index-AbCd1234.js.br',
    '',
  ]) {
    const { statusCode, body } = await get(`/ui/assets/${name}`);
    const isShell = statusCode === 200 && body.includes('<title>pages</title>');
    expect([name, isShell || statusCode === 404]).toEqual([name, true]);
  }
  expect((await built.app.inject({ method: 'POST', url: '/ui/vms' })).statusCode).toBe(404);
});

test('an installation without pages says so, and its API is as ever', async () => {
  for (const url of ['/ui/', '/ui/vms']) {
    const answer = await bare.call('GET', url, { as: null });
    expect([answer.status, answer.body.errors[0].msg_key]).toEqual([404, 'pages_not_built']);
  }
  expect((await bare.call('GET', '/api/controllers/check/', { as: null })).status).toBe(200);
});
