/** What administrators do on the management pages: schedules, users, tokens, tags, disks of other VMs, guests, files of others, a new controller. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { Page } from 'playwright-core';
import { makeRestApp, PASSWORD } from '../contract/rest/app.ts';
import { ended, until } from '../contract/rest/nodes-world.ts';
import { UploadNode } from '../contract/rest/upload-node.ts';
import {
  forgive,
  forgiveOne,
  goTo,
  HOSTILE_NAME,
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

async function choose(of: string, action: string): Promise<void> {
  await button(`Actions of ${of}`).first().click();
  await page.getByRole('menuitem', { name: action, exact: true }).click();
}

/** Ends what was begun last on the node. */
function giveUp(kind: string): void {
  world.node.agent.fail(calls(kind).at(-1)!.request.operationId, new VirtkeepError('canceled'));
}

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
  await page.getByRole('link', { name: 'each night' }).first().waitFor();
  await button('Week').click();
  await button('Later').click();
  await page.getByRole('link', { name: 'each night' }).nth(6).waitFor();
  await page.getByRole('link', { name: 'each night' }).first().click();
  await button('Run now').click();
  await until(() => calls('backup').length > 0);
  await until(() => calls('backup').at(-1)!.request.domainId === world.domains.web.id);
  giveUp('backup');
  await page.getByRole('tab', { name: 'Runs', exact: true }).click();
  await page
    .getByRole('grid', { name: 'Runs' })
    .getByText(/Cancelled|Failed/)
    .first()
    .waitFor();
  await choose('each night', 'Remove');
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
  await choose('carol', 'Change');
  await dialog().getByLabel('Role').selectOption({ label: 'auditor' });
  await dialog().getByRole('button', { name: 'Save' }).click();
  await row('carol').getByText('auditor').waitFor();
  await choose('carol', 'End all logins');
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
  await choose('nightly script', 'Revoke');
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
  await choose('curl/8.14.1, 192.0.2.7', 'End');
  await dialog().getByRole('button', { name: 'End', exact: true }).click();
  await row('192.0.2.7').waitFor({ state: 'detached' });
  expect(await row('192.0.2.8').count()).toBe(1);
  await choose('dave', 'Remove');
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
  await choose(perNode, 'Change');
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
  await choose(perNode, 'As in the file');
  await dialog().getByRole('button', { name: 'As in the file' }).click();
  await dialog().waitFor({ state: 'detached' });
  await row(perNode).getByText('2', { exact: true }).nth(1).waitFor();
  expect(world.rest.services.config.schedules.per_node).toBe(2);
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

test('a data pool tells in how many days it is full, on its page and on the overview', async () => {
  const { db, poolForecasts } = world.rest.services;
  await logIn(seen, at('pools'));
  await row('backups').getByText('when it is full is not known yet').waitFor();
  const now = Date.now();
  const GiB = 1024 ** 3;
  const samples = Array.from({ length: 20 }, (_, day) => ({
    pool_id: world.pool.id,
    day: new Date(now - (20 - day) * 86_400_000).toISOString().slice(0, 10),
    used: 20 * GiB * day,
  }));
  await db.insertInto('pool_samples').values(samples).execute();
  await poolForecasts.refresh(new Date(now));
  await goTo(seen, at('pools'), 'Data pools');
  await row('backups').getByText('full in about 14 days').waitFor();
  await seen.inspect();
  await goTo(seen, at(''), 'Overview');
  await page.getByText('full in about 14 days').waitFor();
  await db.deleteFrom('pool_samples').execute();
  await poolForecasts.refresh(new Date(now));
});

test('how much of its storage the backups of a data pool may take is changed', async () => {
  const pool = async () => (await world.rest.call('GET', `/api/data-pools/${world.pool.id}/`)).body;
  await logIn(seen, at('pools'));
  await choose('backups', 'Change');
  await dialog().getByLabel('MiB per second of all backups that go to it').fill('200');
  await dialog().getByLabel('Longest wait of VMs for its disks, milliseconds').fill('20');
  await seen.inspect();
  await dialog().getByRole('button', { name: 'Save' }).click();
  await dialog().waitFor({ state: 'detached' });
  expect(await pool()).toMatchObject({ backup_bandwidth: 200 * 1024 ** 2, latency_target: 20 });
  await choose('backups', 'Change');
  await dialog().getByLabel('Longest wait of VMs for its disks, milliseconds').fill('60001');
  await dialog().getByRole('button', { name: 'Save' }).click();
  await dialog().locator('#pool-latency-help').waitFor();
  await forgiveOne(seen, /status of 400/);
  await dialog().getByRole('button', { name: 'Cancel' }).click();
  await dialog().waitFor({ state: 'detached' });
  expect((await pool()).latency_target).toBe(20);
});

test('machines are tagged together and found by it', async () => {
  await logIn(seen, at('vms'));
  await page.getByRole('checkbox', { name: 'Select web-1' }).check();
  await page.getByRole('checkbox', { name: 'Select mail' }).check();
  await choose('the 2 selected', 'Tag');
  await dialog().getByLabel('Tag', { exact: false }).last().selectOption({ label: 'Make a tag' });
  await dialog().getByLabel('Name').fill('important');
  await dialog().getByRole('button', { name: 'Add the tag' }).click();
  await row('web-1').getByText('important').waitFor();
  await page.getByLabel('Tag', { exact: true }).selectOption({ label: 'important' });
  await row('database').waitFor({ state: 'detached' });
  await goTo(seen, at('tags'), 'Tags');
  await row('important').getByRole('link').getByText('2').waitFor();
});

test('a disk of one machine is attached to another, and a command runs in a guest', async () => {
  const { agent } = world.node;
  agent.guestCommands = ['guest-exec', 'guest-ping', 'guest-new'].map(name => ({
    name,
    enabled: true,
    successResponse: true,
  })) as never;
  agent.runGuestCommand = async ({ command, argumentsJson }) =>
    JSON.stringify(
      command === 'guest-exec'
        ? { exited: true, exitcode: 0, 'out-data': `${HOSTILE_NAME} ${argumentsJson}` }
        : { said: argumentsJson },
    );
  agent.sshKeys.set('root', [`ssh-ed25519 AAAA ${HOSTILE_NAME}`]);
  const { web, database } = world.domains;
  await logIn(seen, at(`vms/${web.id}/disks`));
  await button('Attach a disk').click();
  await dialog().getByRole('button', { name: 'system' }).nth(1).waitFor();
  const others = dialog().getByRole('listitem').filter({ hasText: 'database' });
  await others.getByRole('button').click();
  await seen.inspect();
  await dialog().getByRole('button', { name: 'Attach a disk' }).click();
  await until(() => calls('attach_disk').length > 0);
  expect(calls('attach_disk').at(-1)!.request).toMatchObject({
    domainId: web.id,
    diskId: database.disks[0]!.id,
  });
  giveUp('attach_disk');
  await page.getByRole('tab', { name: 'Guest' }).click();
  await field('Command').selectOption('guest-exec');
  await page.getByRole('textbox', { name: 'path', exact: true }).fill('/bin/ls');
  await field('arg').fill('-l\n/tmp');
  await button('Run').click();
  const result = page.getByRole('region', { name: 'Result' });
  await result.getByText('"arg":["-l","/tmp"]').waitFor();
  await result.getByText(HOSTILE_NAME).first().waitFor();
  // of a command that nobody here knows the arguments are written as they go
  await field('Command').selectOption('guest-new');
  await field('fargs').fill('{"a": [1]}');
  await button('Run').click();
  await result.getByText('{\\"a\\":[1]}').waitFor();
  await button('Show the keys').click();
  const keys = page.getByRole('list', { name: 'SSH keys of root', exact: true });
  await keys.getByText(HOSTILE_NAME).waitFor();
  // whoever is named since: the key shown is root's
  await page.getByRole('textbox', { name: 'User of the guest' }).fill('alice');
  await keys.getByRole('button').click();
  await dialog().getByText('Remove a key of root?').waitFor();
  await dialog().getByRole('button', { name: 'Cancel' }).click();
  expect(await page.locator('main img, main script').count()).toBe(0);
  // what is in the guest is not cut to nothing before somebody said so
  await page.getByRole('textbox', { name: 'Path in the guest' }).fill('/etc/motd');
  await page
    .locator('input[type=file]')
    .setInputFiles({ name: 'motd', mimeType: 'text/plain', buffer: Buffer.from('hello') });
  await button('Send into the guest').click();
  await dialog().getByText('Replace /etc/motd in the guest?').waitFor();
  await dialog().getByRole('button', { name: 'Cancel' }).click();
  await button('Join a directory').click();
  await dialog().getByLabel('DNS name of the directory').fill('corp.example.org');
  await dialog().getByLabel('Login of who may do this there').fill('joiner');
  await dialog().getByLabel('Password').fill('secret of the directory');
  await dialog().getByRole('button', { name: 'Join a directory' }).click();
  await until(() => calls('join_directory').length > 0);
  expect(calls('join_directory').at(-1)!.request).toMatchObject({ login: 'joiner' });
  giveUp('join_directory');
});

test('a file is brought in by parts, goes on after it was cut off, and is there whole', async () => {
  const root = mkdtempSync(join(tmpdir(), 'virtkeep-web-'));
  const node = await UploadNode.of(world.rest, 'uploads');
  try {
    mkdirSync(join(root, 'pool', 'backups'), { recursive: true });
    const pool = await node.addPool(join(root, 'pool'), { name: 'incoming' });
    const bytes = randomBytes(8 * 1024 * 1024 + 17);
    await logIn(seen, at('import'));
    await page.getByText('Choose a data pool first.').waitFor();
    await page.getByLabel('Data pool').selectOption(pool.id);
    let parts = 0;
    await seen.context.route('**/api/library/upload/*/', route => {
      if (route.request().method() !== 'PATCH') return route.continue();
      parts += 1;
      return parts === 2 ? route.abort('connectionreset') : route.continue();
    });
    await page
      .locator('input[type=file]')
      .setInputFiles({ name: 'appliance.ova', mimeType: 'application/octet-stream', buffer: bytes });
    await page.getByText(/8 MiB \/ 8 MiB · is there/).waitFor();
    await seen.inspect();
    expect(parts).toBe(3);
    expect(readFileSync(join(root, 'pool', 'backups', 'appliance.ova')).equals(bytes)).toBe(true);
    // whoever logs in after it in the same tab sees nothing of it
    await button('Leave out appliance.ova').waitFor();
    await page.getByRole('button', { name: 'Account and appearance' }).click();
    await page.getByRole('menuitem', { name: 'Log out' }).click();
    await page.getByLabel('User name').fill('the-operator');
    await page.getByLabel('Password').fill(PASSWORD);
    await button('Log in').click();
    await page.getByRole('button', { name: 'Account and appearance' }).waitFor();
    await page.getByRole('link', { name: 'Import' }).click();
    await page.getByRole('heading', { level: 1, name: 'Import' }).waitFor();
    await settled(seen);
    expect(await page.content()).not.toContain('Leave out appliance.ova');
    expect(await page.evaluate('Object.keys(localStorage)')).not.toContain('virtkeep.uploads');
    const cut = seen.faults.filter(fault => !fault.includes('ERR_CONNECTION_RESET'));
    seen.faults.splice(0, seen.faults.length, ...cut);
  } finally {
    await node.leave(() => node.agent.stop());
    rmSync(root, { recursive: true, force: true });
  }
});

test('an appliance of several machines becomes a machine: which, in which configuration, on which network', async () => {
  const { agent } = world.node;
  const ova = agent.setFile({
    poolId: world.pool.id,
    filename: 'shop.ova',
    type: 'OVA',
    states: [],
    domainName: 'shop',
  });
  const { body: scan } = await world.rest.call('POST', `/api/data-pools/${world.pool.id}/scan/?async=1`, {
    body: {},
  });
  const files = [...agent.files.values()].filter(({ poolId }) => poolId === world.pool.id);
  agent.succeed(scan._task.id, { files });
  await ended(world.rest, scan._task.id);
  const configurations = [
    { id: 'small', label: 'Small', description: 'for trying', isDefault: true },
    { id: 'large', label: 'Large', description: 'for work', isDefault: false },
  ];
  const system = (id: string) => ({
    id,
    name: id,
    configurations,
    cpuCount: 2,
    memoryCount: 2048n,
    diskCount: 1,
  });
  agent.show = ShowBackupResponse.fromPartial({
    ...agent.show,
    systems: [system('shop'), system(HOSTILE_NAME)] as never,
    networks: ['VM Network'],
  });
  await logIn(seen, at('import'));
  await page.getByRole('link', { name: 'shop.ova' }).click();
  await page.getByLabel('Which machine').selectOption('shop');
  await field('Configuration').selectOption({ label: 'Large' });
  await page.getByText('for work').waitFor();
  await button('Next').click();
  await page.getByLabel('Node', { exact: false }).first().selectOption({ label: 'node-1' });
  await field('Name of the new machine').fill('shop');
  await button('Next').click();
  await field('Network in place of VM Network').fill('default');
  await page.getByRole('checkbox', { name: /^Disks and adapters become virtio/ }).check();
  await seen.inspect();
  await button('Next').click();
  await button('Make the machine').click();
  await page.getByRole('heading', { level: 1, name: 'Tasks' }).waitFor();
  const [{ kind, request }] = agent.calls.slice(-1) as [{ kind: string; request: { operationId: string } }];
  expect([kind, request]).toEqual([
    expect.stringContaining('restore'),
    expect.objectContaining({
      name: 'shop',
      system: 'shop',
      configuration: 'large',
      virtio: true,
      networks: { 'VM Network': 'default' },
    }),
  ]);
  agent.fail(request.operationId, new VirtkeepError('canceled'));
  agent.files.delete(ova.id);
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
  await choose('hook', 'Send a test');
  await page.getByText('The test did not reach hook.').waitFor();
});
