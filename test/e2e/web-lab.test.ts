/**
 * The main job on the management pages, with a real node and real guests, from an empty controller on. A page that has an error, breaks
 * its policy or stands in somebody's way fails.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { type Browser, chromium, type Page } from 'playwright-core';
import { PASSWORD } from '../contract/rest/app.ts';
import { imageOf, ovaOf, ovfOf, STREAM, signed } from '../integration/restore/appliance-lab.ts';
import { type LabAgent, makeAgent } from '../lab/agent.ts';
import { ADMIN, type LabController, makeController } from '../lab/controller.ts';
import { Guest, untilThere } from '../lab/guest.ts';
import { NODE_BIN, programFile } from '../lab/paths.ts';
import { startWorld, type World } from '../lab/world.ts';
import { BROWSER, goTo, logIn, look, rowOf, settled, type Watched } from './web-world.ts';

/** So many bytes take a quarter of a minute at this rate, in which progress is seen on however busy a machine. */
const FILL = 24 * MiB;
const RATE = 1.5 * MiB;

let world: World;
let controller: LabController;
let agent: LabAgent;
let browser: Browser;
let seen: Watched;
let page: Page;
let guest: Guest;

beforeAll(async () => {
  world = await startWorld();
  controller = await makeController({ dir: join(world.dir, 'controller'), password: PASSWORD });
  await controller.daemon.start();
  agent = await makeAgent({ node: world.node, dir: join(world.dir, 'agent') });
  guest = await world.defineTiny({ name: 'web', dataDisks: [{ files: { fill: randomBytes(FILL) } }] });
  await guest.start();
  browser = await chromium.launch(BROWSER);
  seen = await look({ browser });
  page = seen.page;
});
afterAll(async () => {
  await browser?.close();
  await controller?.daemon.kill();
  await world?.stop();
});

const at = (path: string) => `${controller.url}/ui/${path}`;
const button = (name: string) => page.getByRole('button', { name, exact: true });
const row = (text: string) => rowOf(page, text);
const dialog = () => page.getByRole('dialog');
const field = (name: string) => page.getByLabel(name, { exact: true });
const tab = (name: string) => page.getByRole('tab', { name, exact: true });

/** A click is lost when what is still being loaded moves the button between its press and its release. */
async function next(): Promise<void> {
  await button('Next').waitFor();
  await settled(seen);
  await button('Next').click();
}

/** Waits until the task of that title is told to have ended well. */
const done = (title: string) => row(title).filter({ hasText: 'Done' }).waitFor();

async function openMachine(name: string): Promise<void> {
  await page.getByRole('link', { name: 'Virtual machines' }).first().click();
  await page.getByRole('link', { name, exact: true }).click();
  await page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
}

test('the first steps lead to a command, which enrols the node', async () => {
  await logIn(seen, at(''), ADMIN);
  await page.getByRole('link', { name: 'Enrol a hypervisor node' }).click();
  await dialog().getByLabel('Name (its host name when empty)').fill('hypervisor');
  await dialog().getByRole('button', { name: 'Make a token' }).click();
  const command = page.getByRole('textbox', { name: 'Commands for the node' }).first();
  await command.waitFor();
  const shown = `${await dialog().innerText()} ${await command.inputValue().catch(() => '')}`;
  const [, token, program, url] = shown.match(
    /VIRTKEEP_ENROLL_TOKEN='([^']+)' (virtkeep-agent enroll) --config \/etc\/virtkeep\/agent\.yaml --controller (\S+) --token -/,
  )!;
  expect([program, url]).toEqual(['virtkeep-agent enroll', controller.url]);
  // as it stands there, but for where the lab has the program and its settings
  const argv = [NODE_BIN, programFile('virtkeep-agent'), 'enroll', '--config', join(agent.dir, 'agent.yaml')];
  const environment = ['env', `VIRTKEEP_ENROLL_TOKEN=${token}`];
  await world.node.runInside([...environment, ...argv, '--controller', url!, '--token', '-']);
  await agent.daemon.start();
  await button('Close').click();
  await row('hypervisor').getByText('Active').waitFor();
});

test('the first backup is made while the machine runs', async () => {
  await guest.waitForAgent();
  await guest.sh('echo first >/mnt/vda/what; sync');
  await openMachine('web');
  const rest = await controller.admin();
  const pool = `/api/data-pools/${world.node.pool(0).uuid}/`;
  await rest.ok('PUT', pool, { backup_bandwidth: RATE });
  await goTo(seen, at(''), 'Overview');
  await page.getByRole('link', { name: 'Make the first backup' }).click();
  await next();
  await page.getByRole('radio', { name: 'A full backup that can be extended later' }).check();
  await next();
  await button('Start backup').click();
  await page
    .getByText(/^[1-9]\d?%$/)
    .first()
    .waitFor();
  await seen.inspect();
  await done('Back up web');
  await rest.ok('PUT', pool, { backup_bandwidth: 0 });
});

test('the next one copies what has changed', async () => {
  await guest.sh('echo second >/mnt/vda/what; sync');
  await openMachine('web');
  await button('Back up').click();
  await next();
  await page.getByRole('radio', { name: 'Extend the newest backup' }).check();
  await next();
  await button('Start backup').click();
  await done('Extend');
  await openMachine('web');
  await tab('Backups').click();
  await page.getByRole('link', { name: /^Restore: .*, 2$/ }).waitFor();
  await seen.inspect();
});

test('each restore point becomes a machine in another pool, which boots', async () => {
  for (const [point, name, content] of [
    ['2', 'newer', 'second'],
    ['1', 'older', 'first'],
  ] as const) {
    await openMachine('web');
    await tab('Backups').click();
    await page.getByRole('link', { name: new RegExp(`^Restore: .*, ${point}$`) }).click();
    await next();
    await page.getByLabel('Node', { exact: false }).first().selectOption({ label: 'hypervisor' });
    await choosePool('bulk');
    await next();
    await page.getByLabel('Name of the new machine').fill(name);
    await page.getByRole('checkbox', { name: 'Start it when it is restored' }).check();
    await next();
    await button('Start restore').click();
    await done(`Restore ${name}`);
    const restored = await new Guest(world.node, name).waitForAgent();
    expect((await restored.sh('cat /mnt/vda/what')).trim()).toBe(content);
    expect((await restored.disks()).vda).toContain(world.node.pool(1).path);
    await openMachine(name);
    await page.getByText('Running').first().waitFor();
  }
});

/** A choice names the pool and what is free there, which changes at any time. */
async function choosePool(name: string): Promise<void> {
  const pools = page.getByLabel('Data pool');
  const choice = pools.locator('option').filter({ hasText: name }).first();
  await choice.waitFor({ state: 'attached' });
  await pools.selectOption((await choice.getAttribute('value'))!);
}

test('a disk is lent to another machine, which reads it, and is given back', async () => {
  const proxy = new Guest(world.node, 'older');
  await openMachine('older');
  await tab('Disks').click();
  await button('Attach a disk').click();
  await dialog().getByRole('listitem').filter({ hasText: 'newer' }).getByRole('button').click();
  await dialog().getByRole('button', { name: 'Attach a disk' }).click();
  await row('newer').first().waitFor();
  await openMachine('older');
  await tab('Disks').click();
  await row('newer')
    .getByRole('button', { name: /^Detach/ })
    .waitFor();
  expect(
    await proxy.sh(
      `${untilThere('/dev/vdb')}; mkdir -p /tmp/d; mount -t ext4 -o ro,noload /dev/vdb /tmp/d; cat /tmp/d/what; umount /tmp/d`,
    ),
  ).toBe('second\n');
  await row('newer')
    .getByRole('button', { name: /^Detach/ })
    .click();
  await dialog().getByRole('button', { name: 'Detach' }).click();
  await page.getByText('It has none.').waitFor();
});

test('a command runs in the guest', async () => {
  await openMachine('web');
  await tab('Guest').click();
  await field('Command').selectOption('guest-exec');
  await page.getByRole('textbox', { name: 'path', exact: true }).fill('/bin/cat');
  await field('arg').fill('/mnt/vda/what');
  await button('Run').click();
  await page.getByRole('region', { name: 'Result' }).getByText('second').first().waitFor();
  await seen.inspect();
});

test('a schedule is made and stands in the calendar', async () => {
  await page.getByRole('link', { name: 'Overview' }).click();
  await page.getByRole('link', { name: 'Make the first schedule' }).click();
  await page.locator('#schedule-name').fill('nightly');
  await page.getByRole('grid', { name: 'Next runs' }).getByRole('row').nth(2).waitFor();
  await button('Save').click();
  await page.getByRole('heading', { level: 1, name: 'nightly' }).waitFor();
  await goTo(seen, at('schedules/calendar'), 'Calendar');
  // on the last days of a month none of its nights is left
  await button('Later').click();
  await page.getByRole('link', { name: 'nightly' }).first().waitFor();
  // all is done that is to be done first
  await goTo(seen, at(''), 'Overview');
  await page.getByText('Needs attention').waitFor();
  await page.getByText('First steps').waitFor({ state: 'detached' });
});

test('an appliance is imported and becomes a machine', async () => {
  const content = randomBytes(2 * 1024 * 1024);
  const descriptor = ovfOf({ name: 'shop', disks: [{ href: 'one.vmdk', bytes: content.length }] });
  const image = imageOf(world.dir, content, ...STREAM);
  const buffer = ovaOf(signed('shop', { 'shop.ovf': descriptor, 'one.vmdk': image }));
  await goTo(seen, at('import'), 'Import');
  await choosePool('bulk');
  await page
    .locator('input[type=file]')
    .setInputFiles({ name: 'shop.ova', mimeType: 'application/octet-stream', buffer });
  await page.getByText(/ · is there/).waitFor();
  await page.getByRole('link', { name: 'shop.ova' }).first().click();
  await next();
  await page.getByLabel('Node', { exact: false }).first().selectOption({ label: 'hypervisor' });
  await field('Name of the new machine').fill('shop');
  await next();
  await page.getByRole('checkbox', { name: /^Disks and adapters become virtio/ }).check();
  await next();
  await button('Make the machine').click();
  await done('Restore shop');
  await openMachine('shop');
});

test('a login that is ended on one page asks for the password on the other', async () => {
  const other = await look({ browser });
  await logIn(other, at('vms'), ADMIN);
  await goTo(seen, at('account'), 'Account');
  await button('End all logins').click();
  await dialog().getByRole('button', { name: 'End all logins' }).click();
  for (const { page } of [other, seen]) await page.getByLabel('User name').waitFor();
  await other.context.close();
});

test('nothing went wrong on any page', () => {
  const faults = seen.faults.filter(fault => !fault.includes('status of 401'));
  expect(faults).toEqual([]);
});
