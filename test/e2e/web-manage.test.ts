/** What administrators do on the management pages with schedules, users, tokens, settings and a new controller. */
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Page } from 'playwright-core';
import { makeRestApp, PASSWORD } from '../contract/rest/app.ts';
import { until } from '../contract/rest/nodes-world.ts';
import {
  choose,
  forgive,
  forgiveOne,
  giveUp,
  goTo,
  logIn,
  look,
  rowOf,
  settled,
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
const row = (text: string) => rowOf(page, text);
const calls = (kind: string) => world.node.agent.calls.filter(call => call.kind === kind);
const field = (name: string) => page.getByLabel(name, { exact: true });
const dialog = () => page.getByRole('dialog');

test('a schedule is made with a look at what it will do, changed, seen in the calendar, run and removed', async () => {
  await world.backUp(world.domains.web, new Date(Date.now() - 3_600_000), 2);
  await logIn(seen, at('schedules'));
  await button('Make a schedule').click();
  await page.locator('#schedule-name').fill('each night');
  await page.getByRole('grid', { name: 'Next runs' }).getByText('full').first().waitFor();
  await field('Kind').selectOption({ label: 'Extend the newest backup' });
  await page.getByRole('grid', { name: 'Next runs' }).getByText('increment').first().waitFor();
  await page.getByRole('group', { name: 'On these weekdays a full backup' }).getByLabel('Sun').check();
  await page.getByRole('radio', { name: 'Some of them, by what is chosen here' }).check();
  // what is about nothing yet is neither looked at nor saved
  expect(await button('Save').isDisabled()).toBe(true);
  await page.getByRole('textbox', { name: 'Virtual machines' }).fill('web');
  await button('web-1').click();
  await page.getByText('What it would be about now: 1 thing').waitFor();
  // what is written is not turned into another number
  const kept = field('So many backups of a machine stay');
  await kept.fill('');
  await page.locator('#schedule-keep-count-help').getByText('A whole number, 0 or more.').waitFor();
  expect([await kept.inputValue(), await button('Save').isDisabled()]).toEqual(['', true]);
  await kept.fill('2');
  await button('Save').click();
  await page.getByRole('heading', { level: 1, name: 'each night' }).waitFor();
  await page.getByRole('grid', { name: 'Next runs' }).getByRole('row').nth(5).waitFor();
  const { results } = (await world.rest.call('GET', '/api/scheduled-tasks/')).body;
  expect(results).toMatchObject([
    {
      verbose_name: 'each night',
      all: false,
      entities: [world.domains.web.id],
      full_weekdays: ['sun'],
      keep_count: 2,
    },
  ]);
  // two o'clock as the clocks of this browser show it
  const { start_date, time_zone } = results[0];
  expect([time_zone, new Date(start_date).toLocaleTimeString('de', { timeZone: time_zone })]).toEqual([
    'Europe/Berlin',
    '02:00:00',
  ]);
  // another one cannot have its name, which stands at the field
  await goTo(seen, at('schedules/new'), 'Make a schedule');
  await page.locator('#schedule-name').fill('each night');
  await button('Save').click();
  await page.locator('#schedule-name-help').waitFor();
  expect(await page.locator('#schedule-name').getAttribute('aria-invalid')).toBe('true');
  await forgiveOne(seen, /status of 409/);
  await goTo(seen, at('schedules/calendar'), 'Calendar');
  // of today there may be nothing left, and tomorrow may be no day of the weeks of this month
  await button('Later').click();
  await page.getByRole('link', { name: 'each night' }).first().waitFor();
  await button('Today').click();
  await button('Week').click();
  await button('Later').click();
  await page.getByRole('link', { name: 'each night' }).nth(6).waitFor();
  await page.getByRole('link', { name: 'each night' }).first().click();
  await button('Run now').click();
  await until(() => calls('backup').length > 0);
  await until(() => calls('backup').at(-1)!.request.domainId === world.domains.web.id);
  giveUp(world, 'backup');
  await page.getByRole('tab', { name: 'Runs', exact: true }).click();
  await page
    .getByRole('grid', { name: 'Runs' })
    .getByText(/Cancelled|Failed/)
    .first()
    .waitFor();
  await choose(page, 'each night', 'Remove');
  await dialog().getByLabel('Type each night to confirm').fill('each night');
  await dialog().getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('heading', { level: 1, name: 'Schedules' }).waitFor();
  await page.getByText('No schedules').waitFor();
  // the stream told of its end before the page was left
  forgive(seen, /status of 404/);
});

test('a user is added, changed and logged out; a token is shown once and revoked', async () => {
  await logIn(seen, at('users'));
  await button('Add a user').click();
  await dialog().getByLabel('User name').fill('carol');
  await dialog().getByLabel('New password').fill('short');
  await dialog().getByRole('button', { name: 'Add a user' }).click();
  await page.locator('#user-password-help').getByText('at least 10 characters', { exact: false }).waitFor();
  await forgiveOne(seen, /status of 400/);
  await dialog().getByLabel('New password').fill('correct horse battery');
  await seen.inspect();
  await dialog().getByRole('button', { name: 'Add a user' }).click();
  await row('carol').getByText('operator').waitFor();
  await choose(page, 'carol', 'Change');
  await dialog().getByLabel('Role').selectOption({ label: 'auditor' });
  await dialog().getByRole('button', { name: 'Save' }).click();
  await row('carol').getByText('auditor').waitFor();
  await choose(page, 'carol', 'End all logins');
  await dialog().getByRole('button', { name: 'End all logins' }).click();
  await dialog().waitFor({ state: 'detached' });
  await goTo(seen, at('account'), 'Account');
  await button('Make a token').click();
  await dialog().getByLabel('What it is for').fill('nightly script');
  await dialog().getByLabel('Your password, once more').fill(PASSWORD);
  await dialog().getByRole('button', { name: 'Make a token' }).click();
  const token = await page.getByRole('textbox', { name: 'The token' }).inputValue();
  expect(token.split('.')).toHaveLength(3);
  await button('Close').click();
  await row('nightly script').waitFor();
  expect(await page.content()).not.toContain(token.slice(-20));
  await choose(page, 'nightly script', 'Revoke');
  await dialog().getByRole('button', { name: 'Revoke' }).click();
  await row('nightly script').waitFor({ state: 'detached' });
  await button('Change the password').click();
  await dialog().getByLabel('New password', { exact: false }).first().fill('correct horse battery');
  await dialog().getByLabel('New password, once more').fill('correct horse');
  await dialog().getByText('It differs from the one above.').waitFor();
});

test('one login of a user is ended and another one stays; the user is removed', async () => {
  const { users, tokens } = world.rest.services;
  const password = 'correct horse battery';
  const { id } = await users.create({ username: 'dave', password, role: 'operator' });
  await tokens.login('dave', password, '192.0.2.7', 'curl/8.14.1');
  await tokens.login('dave', password, '192.0.2.8', 'Firefox 145, Linux');
  await logIn(seen, at('users'));
  await page.getByRole('link', { name: 'dave' }).click();
  await page.getByRole('heading', { level: 1, name: 'dave', exact: true }).waitFor();
  await row('192.0.2.8').waitFor();
  await seen.inspect();
  await choose(page, 'curl/8.14.1, 192.0.2.7', 'End');
  await dialog().getByRole('button', { name: 'End', exact: true }).click();
  await row('192.0.2.7').waitFor({ state: 'detached' });
  expect(await row('192.0.2.8').count()).toBe(1);
  await choose(page, 'dave', 'Remove');
  await dialog().getByLabel('Type dave to confirm').fill('dave');
  await dialog().getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('heading', { level: 1, name: 'Users', exact: true }).waitFor();
  await row('the-auditor').waitFor();
  await row('dave').waitFor({ state: 'detached' });
  expect((await world.rest.call('GET', `/api/users/${id}/`)).status).toBe(404);
  await button('Actions of the-administrator').click();
  const own = page.getByRole('menuitem', { name: 'Remove', exact: false });
  expect(await own.getAttribute('aria-disabled')).toBe('true');
});

test('a setting of the controller is changed while it runs, and is that of its file again', async () => {
  const perNode = 'Scheduled backups at a time on one node (0: no limit)';
  await logIn(seen, at('settings'));
  await choose(page, perNode, 'Change');
  await dialog().getByLabel('Value').fill('2000');
  await dialog().getByRole('button', { name: 'Save' }).click();
  await dialog().locator('#setting-value-help').waitFor();
  await forgiveOne(seen, /status of 400/);
  await dialog().getByLabel('Value').fill('4');
  await seen.inspect();
  await dialog().getByRole('button', { name: 'Save' }).click();
  await dialog().waitFor({ state: 'detached' });
  await row(perNode).getByText('4', { exact: true }).waitFor();
  expect(world.rest.services.config.schedules.per_node).toBe(4);
  await choose(page, perNode, 'As in the file');
  await dialog().getByRole('button', { name: 'As in the file' }).click();
  await dialog().waitFor({ state: 'detached' });
  await row(perNode).getByText('8', { exact: true }).nth(1).waitFor();
  expect(world.rest.services.config.schedules.per_node).toBe(8);
});

test('the login of a page is ended on it, and the password is asked for', async () => {
  await logIn(seen, at('account'), 'the-auditor');
  await row('this one').getByRole('button').click();
  await page.getByRole('menuitem', { name: 'End', exact: true }).click();
  await dialog().getByText('you log in again', { exact: false }).waitFor();
  await seen.inspect();
  await dialog().getByRole('button', { name: 'End', exact: true }).click();
  await page.getByLabel('User name').waitFor();
  forgive(seen, /status of 401/);
});

test('of an end of all logins the page of who is logged in knows by itself', async () => {
  await logIn(seen, at('account'), 'the-operator');
  await button('End all logins').click();
  await dialog().getByRole('button', { name: 'End all logins' }).click();
  await page.getByLabel('User name').waitFor();
  forgive(seen, /status of 401/);
});

test('a new controller says what is to be done first', async () => {
  const rest = await makeRestApp({ listen: { host: '127.0.0.1', port: 0 } }, undefined, { isSecure: true });
  try {
    await rest.app.listen({ host: '127.0.0.1', port: 0 });
    const url = `https://127.0.0.1:${(rest.app.server.address() as AddressInfo).port}/ui/`;
    await logIn(seen, url);
    const first = page.locator('.pf-v6-c-card').filter({ hasText: 'First steps' });
    await first.locator('[aria-current=step]').getByText('Enrol a hypervisor node').waitFor();
    await seen.inspect();
    await first.getByRole('link', { name: 'Enrol a hypervisor node' }).click();
    await dialog().getByText('Make a token').waitFor();
  } finally {
    await seen.page.close();
    // a browser opens connections before it has a request for them, and a server waits for these
    rest.app.server.closeAllConnections();
    rest.draining.abort(new VirtkeepError('draining'));
    await rest.close();
  }
});

test('what others sent is told, and who did it', async () => {
  await logIn(seen, at('audit'));
  await page.getByRole('textbox', { name: 'User name' }).fill('the-administrator');
  await row('POST /api/session/').first().waitFor();
  await page.getByText('Request').first().click();
  await settled(seen);
  expect(await page.content()).not.toContain(PASSWORD);
  await goTo(seen, at('notifications'), 'Notifications');
  await button('Add a webhook').click();
  await dialog().getByLabel('Name').fill('hook');
  await dialog().getByLabel('Address').fill('https://127.0.0.1:9/');
  await dialog().getByLabel('Secret by which messages are signed').fill('a secret of sixteen');
  await dialog().getByRole('button', { name: 'Save' }).click();
  await row('hook').waitFor();
  await choose(page, 'hook', 'Send a test');
  await page.getByText('The test did not reach hook.').waitFor();
});
