/**
 * Pictures of every page, light and dark, wide and 320 pixels wide, into `docs/screenshots/`; of them git keeps a few.
 * usage: web-screenshots.ts
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { ROOT } from '../lab/paths.ts';
import {
  beginBackup,
  failBackup,
  goTo,
  logIn,
  look,
  settled,
  startWorld,
  type WebWorld,
} from './web-world.ts';

const OUT = join(ROOT, 'docs', 'screenshots');
const HOUR_MS = 3_600_000;
const LOOKS = [
  { name: 'light', width: 1280, height: 900, isDark: false },
  { name: 'dark', width: 1280, height: 900, isDark: true },
  { name: 'light-320', width: 320, height: 800, isDark: false },
  { name: 'dark-320', width: 320, height: 800, isDark: true },
];

/** A picture: its name, the page's address and heading, and what is done on the page before. */
type Picture = [name: string, path: string, heading: string, act?: (page: Page) => Promise<void>];

const press = (name: string) => (page: Page) => page.getByRole('button', { name, exact: true }).click();

/** The forecast of a pool that fills, the sessions of a user, a target of notifications and a tag. */
async function fillMore({ rest, pool, domains }: WebWorld): Promise<string> {
  const { users, tokens, db, poolForecasts } = rest.services;
  const password = 'correct horse battery';
  const dave = await users.create({ username: 'dave', password, role: 'operator', description: 'nights' });
  await tokens.login('dave', password, '192.0.2.7', 'curl/8.14.1');
  await tokens.login('dave', password, '192.0.2.8', 'Firefox 145, Linux');
  await tokens.create(dave.id, 'nightly script', 90);
  const days = Array.from({ length: 20 }, (_, day) => 20 - day);
  const samples = days.map(age => ({
    pool_id: pool.id,
    day: new Date(Date.now() - age * 24 * HOUR_MS).toISOString().slice(0, 10),
    used: Number(pool.allocation) - age * 2 * 1024 ** 3,
  }));
  await db.insertInto('pool_samples').values(samples).execute();
  await poolForecasts.refresh(new Date());
  const { body: tag } = await rest.call('POST', '/api/tags/', { body: { verbose_name: 'important' } });
  await rest.call('POST', `/api/tags/${tag.id}/add-entity/`, {
    body: { entity_uuid: domains.web.id, entity_class: 'domain' },
  });
  return `users/one/${dave.id}`;
}

/** What is to be seen: backups that were made, that failed and that run, and a schedule. */
async function fill(world: WebWorld): Promise<Picture[]> {
  const { web, database, mail, hostile } = world.domains;
  world.node.agent.removeDomain(hostile.id);
  await failBackup(world, mail);
  await world.backUp(mail, new Date(Date.now() - 30 * HOUR_MS));
  await failBackup(world, mail);
  const file = await world.backUp(web, new Date(Date.now() - HOUR_MS), 3);
  world.node.agent.addState(web.id, { name: 'before-upgrade' });
  const { task } = await beginBackup(world, database);
  world.node.agent.progress(task, 'copy', 13n << 27n, 1n << 32n);
  const { body: schedule } = await world.rest.call('POST', '/api/scheduled-tasks/', {
    body: {
      verbose_name: 'nightly',
      action: 'backup',
      periodicity: 'daily',
      all: true,
      options: { increment: true, datapool: world.pool.id },
      full_weekdays: ['sun'],
      keep_count: 14,
    },
  });
  const dave = await fillMore(world);
  return [
    ['overview', '', 'Overview'],
    ['vms', 'vms', 'Virtual machines'],
    ['vm', `vms/${web.id}`, 'web-1'],
    ['vm-backups', `vms/${web.id}/backups`, 'web-1'],
    ['vm-snapshots', `vms/${web.id}/snapshots`, 'web-1'],
    ['backup', `backup?vm=${web.id}`, 'Back up'],
    ['backup-how', `backup?vm=${web.id}`, 'Back up', press('Next')],
    ['restore', `restore?file=${file}`, 'Restore'],
    ['restore-configuration', `restore?file=${file}`, 'Restore', press('Next')],
    ['vm-disks', `vms/${web.id}/disks`, 'web-1'],
    ['vm-guest', `vms/${web.id}/guest`, 'web-1'],
    ['vm-tasks', `vms/${web.id}/tasks`, 'web-1'],
    ['vm-events', `vms/${web.id}/events`, 'web-1'],
    ['files', 'files', 'Backup files'],
    ['import', 'import', 'Import'],
    ['schedules', 'schedules', 'Schedules'],
    ['schedule', `schedules/${schedule.id}`, 'nightly'],
    ['schedule-retention', `schedules/${schedule.id}/retention`, 'nightly'],
    ['schedule-runs', `schedules/${schedule.id}/runs`, 'nightly'],
    ['schedule-new', 'schedules/new', 'Make a schedule'],
    ['schedule-edit', `schedules/${schedule.id}/edit`, 'Change a schedule'],
    ['calendar', 'schedules/calendar', 'Calendar'],
    ['tasks', 'tasks', 'Tasks'],
    ['task-log', 'tasks', 'Tasks', openLog],
    ['nodes', 'nodes', 'Nodes'],
    ['node-enrol', 'nodes', 'Nodes', press('Enrol a node')],
    ['pools', 'pools', 'Data pools'],
    ['events', 'events', 'Events'],
    ['audit', 'audit', 'Audit'],
    ['tags', 'tags', 'Tags'],
    ['users', 'users', 'Users'],
    ['tokens', 'users/tokens', 'Users'],
    ['roles', 'users/roles', 'Users'],
    ['user', dave, 'dave'],
    ['certificates', 'certificates', 'Certificates'],
    ['notifications', 'notifications', 'Notifications'],
    ['settings', 'settings', 'Settings'],
    ['notifications-sent', 'notifications/sent', 'Notifications'],
    ['account', 'account', 'Account'],
    ['not-found', 'nowhere', 'There is no such page.'],
  ];
}

async function openLog(page: Page): Promise<void> {
  const open = page.getByRole('button', { name: /^Log (of|and parts)/ });
  await open.first().click();
}

mkdirSync(OUT, { recursive: true });
const world = await startWorld();
try {
  const pages = await fill(world);
  for (const { name, ...options } of LOOKS) {
    const seen = await look(world, options);
    const take = (page: string) =>
      seen.page.screenshot({ path: join(OUT, `${page}-${name}.png`), animations: 'disabled' });
    await seen.page.goto(`${world.url}/ui/`);
    await seen.page.getByLabel('User name').waitFor();
    await take('login');
    await logIn(seen, `${world.url}/ui/`);
    for (const [name, path, heading, act] of pages) {
      await goTo(seen, `${world.url}/ui/${path}`, heading);
      await settled(seen);
      await act?.(seen.page);
      await settled(seen);
      await take(name);
    }
    await seen.context.close();
  }
} finally {
  await world.close();
}
process.stdout.write(`screenshots: ${OUT}\n`);
process.exit(0);
