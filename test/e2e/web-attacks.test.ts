/**
 * What others try with the pages: names that are markup, other sites and other ports of the same host, frames, addresses that lead
 * away, and looking for the token. And that each of the detectors, by which the tests of the pages see faults, sees one.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { until } from '../contract/rest/nodes-world.ts';
import {
  goTo,
  HOSTILE_NAME,
  logIn,
  look,
  settled,
  startWorld,
  type Watched,
  type WebWorld,
} from './web-world.ts';

let world: WebWorld;
let seen: Watched;

beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world?.close());
beforeEach(async () => {
  seen = await look(world);
});
afterEach(() => seen.context.close());

const at = (path: string) => `${world.url}/ui/${path}`;

describe('a fault is seen', () => {
  beforeEach(async () => {
    await seen.page.goto(at(''));
    await seen.page.getByLabel('User name').waitFor();
  });

  const faults: [string, string, RegExp][] = [
    ['of a script', `setTimeout(() => { throw new Error('broken'); })`, /^error: broken/],
    ['in a promise', `void Promise.reject(new Error('forgotten'))`, /^error: forgotten/],
    ['in the console', `console.error('complaint')`, /^console: complaint/],
    [
      'of the policy: a picture of elsewhere',
      `document.body.append(Object.assign(new Image(), { src: 'https://elsewhere.example/x.png', alt: '' }))`,
      /policy: img-src/,
    ],
    [
      'of the policy: an inline script',
      `(() => { const script = document.createElement('script'); script.append('1'); document.body.append(script); })()`,
      /policy: (script-src-elem inline|require-trusted-types-for)/,
    ],
    [
      'of the policy: an inline style',
      `(() => { const style = document.createElement('style'); style.append('p{}'); document.head.append(style); })()`,
      /policy: style-src-elem inline/,
    ],
    [
      'of the policy: markup made of text',
      `setTimeout(() => { document.body.innerHTML = '<b>text</b>'; })`,
      /policy: require-trusted-types-for/,
    ],
  ];
  test.each(faults)('%s', async (_name, script, fault) => {
    await seen.page.evaluate(script);
    await until(() => seen.faults.some(text => fault.test(text)));
  });

  test('for people who do not see', async () => {
    await seen.inspect();
    expect(seen.faults).toEqual([]);
    await seen.page.evaluate(
      `document.querySelector('main').append(Object.assign(new Image(), { src: '/ui/assets/icon.svg' }))`,
    );
    await seen.inspect();
    expect(seen.faults.join()).toContain('axe: image-alt');
  });
});

describe('of who is logged in', () => {
  beforeEach(() => logIn(seen, at('')));

  test('a name that is markup is shown as it stands, wherever it appears', async () => {
    const { hostile } = world.domains;
    await world.backUp(hostile, new Date());
    // people bring such names, too
    const { body: tag } = await world.rest.call('POST', '/api/tags/', {
      body: { verbose_name: HOSTILE_NAME },
    });
    const named = { verbose_name: HOSTILE_NAME, entities: [hostile.id], tags: [tag.id] };
    const { id } = (await world.rest.call('POST', '/api/scheduled-tasks/', { body: named })).body;
    const { page } = seen;
    for (const path of [
      '',
      'vms',
      `vms/${hostile.id}`,
      `vms/${hostile.id}/backups`,
      `vms/${hostile.id}/disks`,
      `backup?vm=${hostile.id}`,
      `schedules/${id}`,
      'schedules/calendar',
      'tags',
      'files',
      'tasks',
      'events',
    ]) {
      await page.goto(at(path));
      // not one of the choices of a list that is closed
      await page.getByText(HOSTILE_NAME).filter({ visible: true }).first().waitFor();
      expect([path, await page.locator('img, main script').count()]).toEqual([path, 0]);
      expect(await page.title()).not.toBe('pwned');
    }
    // the title of its page is its name, and a text
    await goTo(seen, at(`vms/${hostile.id}`), HOSTILE_NAME);
    expect(await page.title()).toBe(`${HOSTILE_NAME} · virtkeep`);
    expect(seen.faults).toEqual([]);
  });

  test('no address leads away, before a login and after', async () => {
    const { page } = seen;
    const stranger = await look(world);
    for (const path of [
      '/ui//elsewhere.example/',
      '/ui/?next=https://elsewhere.example/',
      '/ui/login?redirect=//elsewhere.example',
      '/ui/%2f%2felsewhere.example',
      '/ui/\\elsewhere.example',
      '//elsewhere.example/%2e%2e',
    ]) {
      for (const tab of [page, stranger.page]) {
        await tab.goto(`${world.url}${path}`, { waitUntil: 'commit' });
        expect(new URL(tab.url()).origin).toBe(world.url);
      }
    }
    await logIn(stranger, `${world.url}/ui/?next=https://elsewhere.example/`);
    expect(new URL(stranger.page.url()).origin).toBe(world.url);
    await stranger.context.close();
  });

  test('scripts find no token: not in the cookie, nor in storage, nor in an address', async () => {
    const addresses: string[] = [];
    seen.page.on('request', request => addresses.push(request.url()));
    await goTo(seen, at('tasks'), 'Tasks');
    await settled(seen);
    expect(await seen.page.evaluate('document.cookie')).toBe('');
    const { cookies, origins } = await seen.context.storageState();
    expect(cookies).toMatchObject([
      { name: '__Host-virtkeep', httpOnly: true, secure: true, sameSite: 'Strict', path: '/' },
    ]);
    const token = cookies[0]!.value;
    expect(JSON.stringify(origins)).not.toContain(token.slice(0, 20));
    expect(origins.flatMap(({ localStorage }) => localStorage.map(({ name }) => name))).toEqual([
      'virtkeep.language',
    ]);
    expect(await seen.page.evaluate('sessionStorage.length')).toBe(0);
    expect(addresses.filter(address => address.includes(token.slice(0, 20)))).toEqual([]);
  });

  test.each([
    ['another site', 'https://elsewhere.example/'],
    ['another port of the same host', 'https://127.0.0.1:9/'],
  ])('%s can neither act for who is logged in, nor read, nor frame the pages', async (_name, origin) => {
    const { page, context } = seen;
    const answered: [string, number][] = [];
    // as the controller saw them: a browser does not tell a page of everything
    const note = (request: IncomingMessage, response: ServerResponse) =>
      response.on('finish', () => {
        const { 'sec-fetch-site': site } = request.headers;
        if (site !== 'same-origin') answered.push([`${request.method} ${request.url}`, response.statusCode]);
      });
    world.rest.app.server.on('request', note);
    await context.route(`${origin}**`, route =>
      route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>elsewhere</title>' }),
    );
    const evil = await context.newPage();
    await evil.goto(origin);
    const { id } = world.domains.mail;
    for (const [path, options] of [
      ['/api/domains/', ''],
      [`/api/domains/${id}/start/`, `, method: 'POST'`],
      ['/api/session/refresh/', `, method: 'POST'`],
    ])
      await evil.evaluate(
        `fetch('${world.url}${path}', { mode: 'no-cors', credentials: 'include'${options} }).then(() => 0, () => 0)`,
      );
    // with credentials and readable, as a script would want it
    expect(
      await evil.evaluate(
        `fetch('${world.url}/api/domains/', { credentials: 'include' }).then(() => 'read', () => 'refused')`,
      ),
    ).toBe('refused');
    const form = `(() => {
    const form = document.createElement('form');
    form.method = 'post';
    form.action = '${world.url}/api/domains/${id}/start/';
    document.body.append(form);
    form.submit();
  })()`;
    await Promise.all([evil.waitForNavigation(), evil.evaluate(form)]);
    world.rest.app.server.off('request', note);
    expect(answered.filter(([, status]) => status !== 401)).toEqual([]);
    expect(answered.map(([what]) => what)).toEqual([
      'GET /api/domains/',
      `POST /api/domains/${id}/start/`,
      'POST /api/session/refresh/',
      'GET /api/domains/',
      `POST /api/domains/${id}/start/`,
    ]);
    expect(world.node.agent.calls.filter(({ kind }) => kind === 'power')).toEqual([]);

    await evil.goto(origin);
    await evil.evaluate(
      `document.body.append(Object.assign(document.createElement('iframe'), { src: '${world.url}/ui/' }))`,
    );
    const frame = await (await evil.waitForSelector('iframe')).contentFrame();
    await frame!.waitForLoadState();
    expect(await frame!.getByLabel('User name').count()).toBe(0);
    expect(await frame!.getByRole('navigation').count()).toBe(0);
    // and who is logged in still is
    await page.reload();
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  });

  test('who lost the right is out with the next call', async () => {
    const { page } = seen;
    await page.getByRole('link', { name: 'Nodes', exact: true }).waitFor();
    const { cookies } = await seen.context.storageState();
    await world.rest.call('DELETE', '/api/session/', {
      as: null,
      headers: { cookie: `__Host-virtkeep=${cookies[0]!.value}`, 'sec-fetch-site': 'same-origin' },
    });
    // the page may have noticed by itself meanwhile, and hidden the link
    await page.evaluate(`document.querySelector('a[href="/ui/nodes"]')?.click()`);
    await page.getByLabel('User name').waitFor();
    expect(await page.getByRole('navigation').count()).toBe(0);
  });
});
