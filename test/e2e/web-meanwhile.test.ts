/** What the management pages show when a login ends in the middle, and when somebody else changes the same thing meanwhile. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Page } from 'playwright-core';
import { PASSWORD } from '../contract/rest/app.ts';
import { until } from '../contract/rest/nodes-world.ts';
import {
  forgive,
  forgiveOne,
  isSamePage,
  logIn,
  look,
  markPage,
  startWorld,
  type Watched,
  type WebWorld,
} from './web-world.ts';

let world: WebWorld;
let seen: Watched;
let page: Page;

beforeAll(async () => {
  world = await startWorld();
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
const button = (name: string) => page.getByRole('button', { name, exact: true });
const calls = (kind: string) => world.node.agent.calls.filter(call => call.kind === kind);

async function logInAgain(username: string): Promise<void> {
  await page.getByText('Your login has ended', { exact: false }).waitFor();
  await page.locator('#username').fill(username);
  await page.locator('#password').fill(PASSWORD);
  await button('Log in').click();
  await page.getByRole('button', { name: 'Account and appearance' }).waitFor();
}

/** Ends all logins of a user, as an administrator or the time does. */
async function endLogins(role: 'operator' | 'administrator'): Promise<void> {
  await world.rest.services.users.change(world.rest.userNumbers[role], { end_sessions: true });
  // a login of this very second would be one of before
  const { sessions_since } = await world.rest.services.users.row(world.rest.userNumbers[role]);
  await until(() => Date.now() >= Date.parse(sessions_since));
}

test('of a login that ends in the middle nothing is lost: who logs in again goes on where they were', async () => {
  await logIn(seen, at('schedules/new'), 'the-operator');
  await markPage(seen);
  await page.locator('#schedule-name').fill('written before');
  await page.locator('#schedule-description').fill('and this');
  // the page learns of it by itself: by what it asks for, or by its stream
  await endLogins('operator');
  await page.getByText('Your login has ended', { exact: false }).waitFor();
  // nothing of it is shown, or read aloud, meanwhile
  expect(await page.getByRole('textbox', { name: 'Description' }).count()).toBe(0);
  expect(await page.locator('#schedule-name').isVisible()).toBe(false);
  await seen.inspect();
  await logInAgain('the-operator');
  expect(await page.locator('#schedule-description').inputValue()).toBe('and this');
  await button('Save').click();
  await page.getByRole('heading', { level: 1, name: 'written before' }).waitFor();
  expect(await isSamePage(seen)).toBe(true);
  forgive(seen, /status of 401/);
});

test('somebody else who logs in then finds nothing of it', async () => {
  await logIn(seen, at('schedules/new'), 'the-operator');
  await page.locator('#schedule-name').fill('of the operator');
  await endLogins('operator');
  await logInAgain('the-administrator');
  await page.locator('#schedule-name').waitFor();
  expect(await page.locator('#schedule-name').inputValue()).toBe('');
  forgive(seen, /status of 401/);
});

test('a backup goes on at the step where its login ended, with what was chosen', async () => {
  await logIn(seen, at(`backup?vm=${world.domains.web.id}`), 'the-operator');
  await page.getByText('1 machine').waitFor();
  await button('Next').click();
  await page.getByLabel('Data pool').selectOption({ index: 1 });
  await page.getByRole('checkbox', { name: 'Compress (zstd)' }).check();
  await button('Next').click();
  await endLogins('operator');
  const before = calls('backup').length;
  await logInAgain('the-operator');
  await button('Start backup').click();
  await until(() => calls('backup').length > before);
  const { request } = calls('backup').at(-1)!;
  expect(request).toMatchObject({ compress: true, domainId: world.domains.web.id });
  world.node.agent.fail(request.operationId, new VirtkeepError('canceled'));
  forgive(seen, /status of 401/);
});

test('what another one has changed in a schedule meanwhile is told, and not overwritten unasked', async () => {
  const { body: made } = await world.rest.call('POST', '/api/scheduled-tasks/', {
    body: { verbose_name: 'of both', action: 'backup', periodicity: 'daily', all: true },
  });
  const path = `/api/scheduled-tasks/${made.id}/`;
  const stored = async () => (await world.rest.call('GET', path)).body;
  await logIn(seen, at(`schedules/${made.id}/edit`));
  await page.locator('#schedule-description').fill('mine');
  expect(
    (await world.rest.call('PUT', path, { body: { description: 'theirs', keep_count: 7 } })).status,
  ).toBe(200);
  await button('Save').click();
  await page.getByText('was changed by somebody else meanwhile', { exact: false }).waitFor();
  await forgiveOne(seen, /status of 409/);
  await seen.inspect();
  expect(await stored()).toMatchObject({ description: 'theirs', keep_count: 7 });
  await button('Show it as it is now, without my changes').click();
  await until(async () => (await page.locator('#schedule-description').inputValue()) === 'theirs');
  await page.locator('#schedule-description').fill('mine after all');
  await world.rest.call('PUT', path, { body: { keep_count: 9 } });
  await button('Save').click();
  await button('Save my changes all the same').click();
  await forgiveOne(seen, /status of 409/);
  await page.getByRole('heading', { level: 1, name: 'of both' }).waitFor();
  // what nobody touched here stays theirs
  expect(await stored()).toMatchObject({ description: 'mine after all', keep_count: 9 });
});

test('a machine that is removed while its backup is prepared is told, and nothing is begun', async () => {
  const { agent } = world.node;
  const { id } = agent.setDomain({
    ...world.domains.web,
    id: crypto.randomUUID(),
    name: 'short-lived',
    disks: [],
  });
  await until(async () => (await world.rest.call('GET', `/api/domains/${id}/`)).status === 200);
  await logIn(seen, at(`backup?vm=${id}`));
  await page.getByText('1 machine').waitFor();
  await button('Next').click();
  await page.getByLabel('Data pool').selectOption({ index: 1 });
  await button('Next').click();
  const before = calls('backup').length;
  agent.removeDomain(id);
  await until(async () => (await world.rest.call('GET', `/api/domains/${id}/`)).status === 404);
  await button('Start backup').click();
  // the page asks for the machine again, too, sooner or later
  await page.getByRole('alert').getByText(id, { exact: false }).first().waitFor();
  await seen.inspect();
  expect(calls('backup').length).toBe(before);
  await forgiveOne(seen, /status of 404/);
  await seen.context.close();
  forgive(seen, /status of 404/);
});

test('a user who is disabled while logged in is asked to log in, without doing anything, and cannot', async () => {
  await logIn(seen, at('vms'), 'the-auditor');
  const { users } = world.rest.services;
  await users.change(world.rest.userNumbers.auditor, { enabled: false });
  await page.getByText('Your login has ended', { exact: false }).waitFor();
  expect(await page.getByRole('link', { name: 'web-1' }).count()).toBe(0);
  await page.locator('#password').fill(PASSWORD);
  await button('Log in').click();
  await page.getByText('The user name or the password is wrong.').waitFor();
  await users.change(world.rest.userNumbers.auditor, { enabled: true });
  forgive(seen, /status of 401/);
});
