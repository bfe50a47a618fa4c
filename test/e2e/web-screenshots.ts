/**
 * Pictures of every page, light and dark, wide and 320 pixels wide, into `docs/screenshots/`; of them git keeps a few.
 * usage: web-screenshots.ts
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
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

/** What is to be seen: backups that were made, that failed and that run, and a schedule. */
async function fill(world: WebWorld): Promise<[string, string, string][]> {
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
  return [
    ['overview', '', 'Overview'],
    ['vms', 'vms', 'Virtual machines'],
    ['vm', `vms/${web.id}`, 'web-1'],
    ['vm-backups', `vms/${web.id}/backups`, 'web-1'],
    ['vm-snapshots', `vms/${web.id}/snapshots`, 'web-1'],
    ['backup', `backup?vm=${web.id}`, 'Back up'],
    ['restore', `restore?file=${file}`, 'Restore'],
    ['vm-disks', `vms/${web.id}/disks`, 'web-1'],
    ['vm-guest', `vms/${web.id}/guest`, 'web-1'],
    ['vm-events', `vms/${web.id}/events`, 'web-1'],
    ['files', 'files', 'Backup files'],
    ['import', 'import', 'Import'],
    ['schedules', 'schedules', 'Schedules'],
    ['schedule', `schedules/${schedule.id}`, 'nightly'],
    ['schedule-edit', `schedules/${schedule.id}/edit`, 'Change a schedule'],
    ['calendar', 'schedules/calendar', 'Calendar'],
    ['tasks', 'tasks', 'Tasks'],
    ['nodes', 'nodes', 'Nodes'],
    ['pools', 'pools', 'Data pools'],
    ['events', 'events', 'Events'],
    ['audit', 'audit', 'Audit'],
    ['tags', 'tags', 'Tags'],
    ['users', 'users', 'Users'],
    ['user', 'users/one/1', 'the-administrator'],
    ['certificates', 'certificates', 'Certificates'],
    ['notifications', 'notifications', 'Notifications'],
    ['account', 'account', 'Account'],
  ];
}

mkdirSync(OUT, { recursive: true });
const world = await startWorld();
try {
  const pages = await fill(world);
  for (const { name, ...options } of LOOKS) {
    const seen = await look(world, options);
    const take = (page: string) => seen.page.screenshot({ path: join(OUT, `${page}-${name}.png`) });
    await seen.page.goto(`${world.url}/ui/`);
    await seen.page.getByLabel('User name').waitFor();
    await take('login');
    await logIn(seen, `${world.url}/ui/`);
    for (const [page, path, heading] of pages) {
      await goTo(seen, `${world.url}/ui/${path}`, heading);
      await settled(seen);
      await take(page);
    }
    await seen.context.close();
  }
} finally {
  await world.close();
}
process.stdout.write(`screenshots: ${OUT}\n`);
process.exit(0);
