/** What administrators do on the management pages with pools, tags, disks of other VMs, guests and files of others. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { Page } from 'playwright-core';
import { PASSWORD } from '../contract/rest/app.ts';
import { ended, until } from '../contract/rest/nodes-world.ts';
import { UploadNode } from '../contract/rest/upload-node.ts';
import {
  choose,
  forgiveOne,
  giveUp,
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
  await choose(page, 'backups', 'Change');
  await dialog().getByLabel('MiB per second of all backups that go to it').fill('200');
  await dialog().getByLabel('Longest wait of VMs for its disks, milliseconds').fill('20');
  await seen.inspect();
  await dialog().getByRole('button', { name: 'Save' }).click();
  await dialog().waitFor({ state: 'detached' });
  expect(await pool()).toMatchObject({ backup_bandwidth: 200 * 1024 ** 2, latency_target: 20 });
  await choose(page, 'backups', 'Change');
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
  await choose(page, 'the 2 selected', 'Tag');
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
  giveUp(world, 'attach_disk');
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
  giveUp(world, 'join_directory');
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
