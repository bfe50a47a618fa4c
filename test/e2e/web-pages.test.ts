/** The management pages in a browser, against a controller with scripted nodes: what people do on them, and what they see of it. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Page, Request } from 'playwright-core';
import { PASSWORD } from '../contract/rest/app.ts';
import { until } from '../contract/rest/nodes-world.ts';
import {
  beginBackup,
  choose,
  failBackup,
  forgiveOne,
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
let file: string;

beforeAll(async () => {
  world = await startWorld();
  file = await world.backUp(world.domains.web, new Date(Date.now() - 3_600_000), 3);
  await failBackup(world, world.domains.web);
  await world.rest.call('POST', '/api/scheduled-tasks/', {
    body: { verbose_name: 'nightly', action: 'backup', periodicity: 'daily', all: true },
  });
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

test('a wrong password is told, a right one shows the page that was asked for, and logging out hides it', async () => {
  await page.goto(at('vms'));
  await seen.inspect();
  await page.getByLabel('User name').fill('the-operator');
  await page.getByLabel('Password').fill('not the password');
  // the browser tells of the refusal in its console
  await page.keyboard.press('Enter');
  await page.getByText('The user name or the password is wrong.').waitFor();
  seen.faults.length = 0;
  await page.getByLabel('Password').fill(PASSWORD);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Virtual machines' }).waitFor();
  await page.getByRole('link', { name: 'web-1' }).waitFor();
  await page.getByRole('button', { name: 'Account and appearance' }).click();
  await page.getByText('the-operator (operator)').waitFor();
  await page.getByRole('menuitem', { name: 'Log out' }).click();
  await page.getByLabel('User name').waitFor();
  expect(await page.getByText('web-1').count()).toBe(0);
});

test('what a login still asks for when it is left neither fails nor ends the next login', async () => {
  await logIn(seen, at(''));
  // the controller hears it when the login is over, and its answer comes when the next one has begun
  const overdue = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  const refused = Promise.withResolvers<void>();
  await seen.context.route('**/api/domains/?*', async route => {
    asked.resolve();
    await overdue.promise;
    await route.continue().catch(() => undefined);
  });
  const isIt = (request: Request) => request.url().includes('/api/domains/?');
  seen.context.on('requestfailed', request => isIt(request) && refused.resolve());
  seen.context.on('response', response => isIt(response.request()) && refused.resolve());
  await page.getByRole('link', { name: 'Virtual machines' }).click();
  await asked.promise;
  await page.getByRole('button', { name: 'Account and appearance' }).click();
  await page.getByRole('menuitem', { name: 'Log out' }).click();
  await page.getByLabel('User name').fill('the-operator');
  await page.getByLabel('Password').fill(PASSWORD);
  overdue.resolve();
  await refused.promise;
  await button('Log in').click();
  await page.getByRole('link', { name: 'web-1' }).waitFor();
  await settled(seen);
});

test('a logout that does not arrive leaves everything as it was; one of which only the answer is lost is one', async () => {
  await logIn(seen, at('vms'));
  await page.getByRole('link', { name: 'web-1' }).waitFor();
  let arrives = false;
  await seen.context.route('**/api/session/', async route => {
    if (route.request().method() !== 'DELETE') return route.continue();
    if (arrives) await route.fetch();
    await route.abort('connectionreset');
  });
  const logOut = async () => {
    await page.getByRole('button', { name: 'Account and appearance' }).click();
    await page.getByRole('menuitem', { name: 'Log out' }).click();
    await forgiveOne(seen, /ERR_CONNECTION_RESET/);
  };
  await logOut();
  await page.getByRole('link', { name: 'web-1' }).click();
  await page.getByRole('heading', { level: 1, name: 'web-1', exact: true }).waitFor();
  await settled(seen);
  arrives = true;
  await logOut();
  await page.getByLabel('User name').waitFor();
  expect(await page.content()).not.toContain('web-1');
});

test('what is asked of one machine is not asked of another after going back to it', async () => {
  const { web, database } = world.domains;
  const heading = (name: string) => page.getByRole('heading', { level: 1, name, exact: true });
  await logIn(seen, at(`vms/${web.id}`));
  await heading('web-1').waitFor();
  // as a link on its page leads to another machine
  await page.evaluate(
    `history.pushState(null, '', '/ui/vms/${database.id}'); dispatchEvent(new PopStateEvent('popstate'))`,
  );
  await heading('database').waitFor();
  await choose(page, 'database', 'Reset');
  await page.getByRole('dialog').waitFor();
  await page.goBack();
  await heading('web-1').waitFor();
  expect(await page.getByRole('dialog').count()).toBe(0);
});

test('the overview names who needs attention, and follows what happens without being asked', async () => {
  await logIn(seen, at(''));
  const needs = page.locator('.pf-v6-c-card').filter({ hasText: 'Needs attention' });
  await needs.getByText('mail').waitFor();
  await page.getByText('Nothing runs now.').waitFor();
  const { task } = await beginBackup(world, world.domains.mail);
  await page.getByRole('progressbar', { name: 'Progress of Back up mail' }).waitFor();
  world.node.agent.progress(task, 'copy', 3n << 28n, 1n << 30n);
  await page.getByText('75%').waitFor();
  const about = { poolId: world.pool.id, domainId: world.domains.mail.id, domainName: 'mail' };
  world.node.agent.succeed(task, { file: world.node.agent.setFile(about) });
  await page.getByText('Nothing runs now.').waitFor();
});

test('machines are found, chosen and backed up together, and a task is stopped', async () => {
  await logIn(seen, at('vms'));
  await page.getByRole('textbox', { name: 'Search by name' }).fill('web');
  await row('database').waitFor({ state: 'detached' });
  await page.getByRole('textbox', { name: 'Search by name' }).fill('');
  await page.getByLabel('Power', { exact: true }).selectOption({ label: 'Running' });
  await row('mail').waitFor({ state: 'detached' });
  await page.getByRole('checkbox', { name: 'Select web-1' }).check();
  await page.getByRole('checkbox', { name: 'Select database' }).check();
  await page.getByText('2 selected').waitFor();
  const before = calls('backup').length;
  await button('Back up selected').click();
  await page.getByText('2 machines').waitFor();
  await button('Next').click();
  // its node has no base data pool
  expect(await button('Next').isDisabled()).toBe(true);
  await page.getByLabel('Data pool').selectOption({ index: 1 });
  await page.getByRole('checkbox', { name: 'Compress (zstd)' }).check();
  await seen.inspect();
  await button('Next').click();
  await button('Start backup').click();
  await page.getByRole('heading', { level: 1, name: 'Tasks' }).waitFor();
  await until(() => calls('backup').length === before + 2);
  for (const { request } of calls('backup').slice(before)) expect(request).toMatchObject({ compress: true });
  const begun = calls('backup').slice(before);
  const [first, second] = [begun[0]!, begun[1]!].map(({ request }) => ({
    operation: request.operationId,
    vm: nameOf(String(request.domainId)),
  })) as [Begun, Begun];
  // a tree that is opened by keyboard alone; parts stand under what they are parts of, and nowhere else
  const parts = page.getByRole('button', { name: /^Log and parts of / }).first();
  expect(await page.getByRole('button', { name: `Stop Back up ${first.vm}` }).count()).toBe(0);
  await parts.focus();
  await page.keyboard.press('Enter');
  for (const { vm } of [first, second])
    await page.getByRole('button', { name: `Stop Back up ${vm}` }).waitFor();
  await row(`Back up ${first.vm}part of`).getByRole('button', { name: 'Log of' }).focus();
  await page.keyboard.press('Enter');
  const log = page.getByRole('log', { name: `What happened in Back up ${first.vm}` });
  await log.waitFor();
  // it grows as the task does
  world.node.agent.progress(first.operation, 'estimate', 0n, 0n);
  await log.getByText('estimate').waitFor();
  world.node.agent.progress(first.operation, 'copy', 1n << 29n, (1n << 29n) + 240_000n);
  await log.getByText('copy').waitFor();
  await page.getByText('about 4 min', { exact: false }).waitFor();
  await seen.inspect();
  await page.getByRole('button', { name: `Stop Back up ${first.vm}` }).click();
  await until(() => isOver(first.operation));
  await page.getByRole('button', { name: `Stop Back up ${first.vm}` }).waitFor({ state: 'detached' });
  await log.getByText(/cancel/i).waitFor();
  expect(isOver(second.operation)).toBe(false);
  // the one of many parts ends with them
  await page
    .getByRole('button', { name: /^Stop / })
    .first()
    .click();
  await until(() => isOver(second.operation));
  await page
    .getByRole('button', { name: /^Stop / })
    .first()
    .waitFor({ state: 'detached' });
});

interface Begun {
  operation: string;
  vm: string;
}

const nameOf = (id: string) => Object.values(world.domains).find(domain => domain.id === id)!.name;

const isOver = (id: string) => world.node.agent.operations.get(id)?.finished !== undefined;
const canceled = () => new VirtkeepError('canceled');

test('a restore point becomes a new machine by four steps', async () => {
  await logIn(seen, at(`vms/${world.domains.web.id}/backups`));
  await page.getByRole('link', { name: 'Restore: web-1.tar, 2' }).click();
  await page.getByText('The host device 0000:01:00.0 is left out.').waitFor();
  expect(await page.getByLabel('Restore point').inputValue()).toBe('2');
  await button('Next').click();
  expect(await button('Next').isDisabled()).toBe(true);
  await page.getByLabel('Node', { exact: false }).first().selectOption({ label: 'node-1' });
  await page.getByLabel('Data pool').selectOption({ index: 1 });
  await button('Next').click();
  expect(await button('Next').isDisabled()).toBe(true);
  await page.getByLabel('Name of the new machine').fill('web-copy');
  await page.getByRole('checkbox', { name: 'Start it when it is restored' }).check();
  await seen.inspect();
  await page.getByLabel('Name of the new machine').press('Enter');
  await page.getByText('As a new machine: web-copy').waitFor();
  await button('Start restore').click();
  await page.getByRole('heading', { level: 1, name: 'Tasks' }).waitFor();
  const { request } = calls('restore').at(-1)!;
  expect(request).toMatchObject({ name: 'web-copy', startOn: true, poolId: world.pool.id });
  world.node.agent.fail(request.operationId, new VirtkeepError('disk_full', { path: '/pools' }));
  await row('Restore').getByText('Failed').first().waitFor();
});

test('a file is deleted by who types its name, and described by who may', async () => {
  await logIn(seen, at('files'));
  await choose(page, 'web-1.tar', 'Describe');
  await page.getByLabel('Description', { exact: true }).fill('before the upgrade');
  await button('Save').click();
  await row('before the upgrade').waitFor();
  await choose(page, 'web-1.tar', 'Compress');
  await page.getByRole('dialog').getByLabel('Level of zstd (1 to 9)').fill('5');
  await seen.inspect();
  await page.getByRole('dialog').getByRole('button', { name: 'Compress' }).click();
  await until(() => calls('recompress').length > 0);
  expect(calls('recompress').at(-1)!.request).toMatchObject({ compressionLevel: 5 });
  world.node.agent.fail(calls('recompress').at(-1)!.request.operationId, canceled());
  await row('web-1.tar').getByText('Active').waitFor();
  await choose(page, 'web-1.tar', 'Delete');
  const dialog = page.getByRole('dialog');
  await dialog.getByText('3 restore points are lost for good').waitFor();
  const remove = dialog.getByRole('button', { name: 'Delete' });
  expect(await remove.isDisabled()).toBe(true);
  await dialog.getByLabel('Type web-1.tar to confirm').fill('web-1.ta');
  expect(await remove.isDisabled()).toBe(true);
  await seen.inspect();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await dialog.waitFor({ state: 'detached' });
  await button('Actions of web-1.tar').click();
  const link = page.getByRole('menuitem', { name: 'Download' });
  expect(await link.getAttribute('href')).toBe(`/api/library/${file}/download/`);
});

test('a node is enrolled by a command that has the token, which is good for one node', async () => {
  await logIn(seen, at('nodes'));
  await button('Enrol a node').click();
  await page.getByLabel('Name (its host name when empty)').fill('node-3');
  await button('Make a token').click();
  const command = page.getByRole('textbox', { name: 'Commands for the node' }).first();
  await command.waitFor();
  await seen.inspect();
  const text = `${await page.getByRole('dialog').innerText()} ${await command.inputValue().catch(() => '')}`;
  expect(text).toContain(`--controller ${world.url} --token -`);
  expect(text).toMatch(/VIRTKEEP_ENROLL_TOKEN='[\w-]+\.[0-9a-f]{64}'/);
  await button('Close').click();
  await choose(page, 'node-1', 'Begin service mode');
  await page.getByRole('dialog').getByRole('button', { name: 'Begin service mode' }).click();
  await row('node-1').getByText('Service mode').waitFor();
  await choose(page, 'node-1', 'End service mode');
  await row('node-1').getByText('Active').waitFor();
});

test('what a role may not do is shown, disabled, with the reason', async () => {
  await logIn(seen, at(`vms/${world.domains.web.id}`), 'the-auditor');
  const backup = button('Back up');
  await backup.waitFor();
  expect(await backup.getAttribute('aria-disabled')).toBe('true');
  await backup.focus();
  await page.getByRole('tooltip', { name: 'Your role (auditor) does not allow this.' }).waitFor();
  await page.keyboard.press('Escape');
  await button('Actions of web-1').click();
  expect(await page.getByText('Your role (auditor) does not allow this.').count()).toBeGreaterThan(4);
  await seen.inspect();
});

test('a snapshot is made and reverted to by name; the page is worked by keyboard alone', async () => {
  world.node.agent.addState(world.domains.web.id, { name: 'before-upgrade' });
  await logIn(seen, at(`vms/${world.domains.web.id}`));
  await page.getByRole('tab', { name: 'Snapshots' }).focus();
  await page.keyboard.press('Enter');
  await row('before-upgrade').waitFor();
  await button('Make a snapshot').focus();
  await page.keyboard.press('Enter');
  await page.getByLabel('Name of the snapshot').fill('by keyboard');
  await page.keyboard.press('Enter');
  await until(() => calls('create_snapshot').length > 0);
  const { request } = calls('create_snapshot').at(-1)!;
  world.node.agent.fail(request.operationId, canceled());
  await button('Actions of before-upgrade').focus();
  await page.keyboard.press('Enter');
  await page.locator('[role="menuitem"]:focus').waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').getByText('Everything that the machine has written').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
});

test('two tabs share one stream, and a login that has ended asks for the password on both', async () => {
  let streams = 0;
  seen.context.on('request', request => {
    if (request.url().endsWith('/api/events/stream/')) streams += 1;
  });
  await logIn(seen, at('tasks'), 'the-operator');
  const other = await seen.context.newPage();
  await other.goto(at('tasks'));
  await other.getByRole('heading', { level: 1, name: 'Tasks' }).waitFor();
  const { task } = await beginBackup(world, world.domains.mail);
  world.node.agent.progress(task, 'copy', 1n << 28n, 1n << 30n);
  for (const tab of [page, other]) await tab.getByText('25%').waitFor();
  expect(streams).toBe(1);
  world.node.agent.fail(task, canceled());
  for (const tab of [page, other]) await tab.getByText('25%').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Account and appearance' }).click();
  await page.getByRole('menuitem', { name: 'Log out' }).click();
  for (const tab of [page, other]) await tab.getByLabel('User name').waitFor();
});

test('a browser that prefers Russian gets Russian pages', async () => {
  await seen.context.close();
  seen = await look(world, { locale: 'ru-RU' });
  page = seen.page;
  await page.goto(at('vms'));
  await page.getByLabel('Имя пользователя').fill('the-operator');
  await page.getByLabel('Пароль').fill(PASSWORD);
  await button('Войти').click();
  await page.getByRole('heading', { level: 1, name: 'Виртуальные машины' }).waitFor();
  await settled(seen);
  expect(await page.locator('html').getAttribute('lang')).toBe('ru');
  await seen.inspect();
});
