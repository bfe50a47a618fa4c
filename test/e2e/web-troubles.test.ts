/**
 * What the management pages show when something goes wrong: the controller, a node or the network is away for a while, a clock is off.
 */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Page } from 'playwright-core';
import { ended } from '../contract/rest/nodes-world.ts';
import {
  beginBackup,
  forgive,
  goTo,
  isSamePage,
  logIn,
  look,
  markPage,
  rowOf,
  settled,
  startWorld,
  type Watched,
  type WebWorld,
} from './web-world.ts';

const HOUR_MS = 3_600_000;
const AWAY = 'Live updates are interrupted';
/** What the browser writes into its console when nobody answers. */
const NO_ANSWER = /ERR_(CONNECTION|INTERNET|NETWORK|EMPTY|SOCKET|INCOMPLETE|HTTP2|TIMED)|status of 503/;

let world: WebWorld;
let seen: Watched;
let page: Page;

beforeAll(async () => {
  world = await startWorld({ agents: { lost_after_s: 0.3 } });
});
afterAll(() => world?.close());

beforeEach(async () => {
  seen = await look(world);
  page = seen.page;
});
afterEach(async () => {
  await seen.context.close();
  expect(seen.faults).toEqual([]);
});

const at = (path: string) => `${world.url}/ui/${path}`;
const row = (text: string) => rowOf(page, text);

test('while the controller is away the page says so; once it is back all goes on without being loaded anew', async () => {
  await logIn(seen, at('tasks'));
  await markPage(seen);
  const { task } = await beginBackup(world, world.domains.database);
  world.node.agent.progress(task, 'copy', 1n << 28n, 1n << 30n);
  await row('Back up database').getByText('25%').waitFor();
  await world.rest.restart(async () => {
    await page.getByText(AWAY).waitFor();
    await seen.inspect();
  });
  await page.getByText(AWAY).waitFor({ state: 'detached' });
  world.node.agent.progress(task, 'copy', 1n << 29n, 1n << 30n);
  await row('Back up database').getByText('50%').waitFor();
  world.node.agent.fail(task, new VirtkeepError('canceled'));
  await ended(world.rest, task, 'FAILED');
  await row('Back up database').getByText('Failed').first().waitFor();
  expect(await isSamePage(seen)).toBe(true);
  forgive(seen, NO_ANSWER);
});

test('a page that is opened while the controller does not answer comes by itself once it does', async () => {
  await seen.context.route('**/api/session/', route => route.abort('connectionrefused'));
  await page.goto(at('vms'));
  await page.getByText('That did not work').waitFor();
  await seen.inspect();
  await seen.context.unroute('**/api/session/');
  await page.getByLabel('User name').waitFor();
  forgive(seen, NO_ANSWER);
});

test('a node that is lost is told, with what became of its tasks, and so is its return', async () => {
  await logIn(seen, at('tasks'));
  await markPage(seen);
  const { agent, tls } = world.node;
  const { task } = await beginBackup(world, world.domains.mail);
  agent.progress(task, 'copy', 1n << 28n, 1n << 30n);
  await row('Back up mail').getByText('25%').waitFor();
  await agent.stop();
  await row('Back up mail').getByText('Lost').waitFor();
  await page.getByRole('link', { name: 'Nodes' }).click();
  await row('node-1').getByText('Away').waitFor();
  await seen.inspect();
  await agent.start(tls);
  await row('node-1').getByText('Active').waitFor();
  await page.getByRole('link', { name: 'Tasks' }).click();
  await row('Back up mail').getByText('25%').waitFor();
  agent.fail(task, new VirtkeepError('canceled'));
  await ended(world.rest, task, 'FAILED');
  await row('Back up mail').getByText('Failed').first().waitFor();
  expect(await isSamePage(seen)).toBe(true);
});

test('a network that is cut is told, and what happened meanwhile shows once it is back', async () => {
  await logIn(seen, at('tags'));
  await markPage(seen);
  await page.getByText('No tags').waitFor();
  await seen.context.setOffline(true);
  await page.getByText(AWAY).waitFor();
  const body = { verbose_name: 'made meanwhile' };
  expect((await world.rest.call('POST', '/api/tags/', { body })).status).toBe(200);
  await seen.context.setOffline(false);
  await page.getByText(AWAY).waitFor({ state: 'detached' });
  await row('made meanwhile').waitFor();
  expect(await isSamePage(seen)).toBe(true);
  forgive(seen, NO_ANSWER);
});

test.each([-5, 7])(
  'ages and due times are right in a browser whose clock is off by %i hours',
  async hours => {
    await world.backUp(world.domains.web, new Date(Date.now() - 2.2 * HOUR_MS));
    const { body: schedule } = await world.rest.call('POST', '/api/scheduled-tasks/', {
      body: {
        verbose_name: `later by ${hours}`,
        action: 'backup',
        periodicity: 'once',
        start_date: new Date(Date.now() + 3.3 * HOUR_MS).toISOString(),
        all: true,
      },
    });
    await seen.context.addInitScript(`{
    const Real = Date;
    const shift = ${hours * HOUR_MS};
    globalThis.Date = class extends Real {
      constructor(...given) { if (given.length === 0) super(Real.now() + shift); else super(...given); }
      static now() { return Real.now() + shift; }
    };
  }`);
    await logIn(seen, at('vms'));
    await row('web-1').getByText('2 hours ago').waitFor();
    await goTo(seen, at(''), 'Overview');
    await page.getByText('in 3 hours').first().waitFor();
    await goTo(seen, at('account'), 'Account');
    await row('this one')
      .getByText(/second|minute|now/)
      .waitFor();
    await settled(seen);
    await world.rest.call('POST', `/api/scheduled-tasks/${schedule.id}/remove/`, { body: {} });
  },
);
