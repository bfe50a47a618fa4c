/** How every management page looks to a program that judges for people who do not see, or point, well: and whether it fits a narrow screen. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { ended } from '../contract/rest/nodes-world.ts';
import {
  beginBackup,
  failBackup,
  goTo,
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
  seen = await look(world);
});
afterAll(async () => {
  await seen?.context.close();
  await world?.close();
});

/** Of the narrow and the dark, judged on some pages that between them have every kind of part: what these rules judge is made of the parts. */
const OF_LOOKS = [
  'color-contrast',
  'target-size',
  'label-content-name-mismatch',
  'aria-hidden-focus',
  'scrollable-region-focusable',
];
/** What can be used and runs out of the page, unless it can be scrolled to by buttons or with all around it. */
const OUTSIDE = `[...document.querySelectorAll('button, a, input, select, textarea')]
  .filter(one => one.getBoundingClientRect().right > innerWidth && one.checkVisibility())
  .filter(one => !one.closest('.vk-scroll, [class*="c-tabs"]'))
  .map(one => one.textContent || one.id)`;
const IN_DARK = ['Overview', 'Virtual machines', 'Restore', 'Change a schedule', 'Calendar', 'Account'];

const at = (path: string) => `${world.url}/ui/${path}`;

/** As a link leads there. */
async function follow(path: string, heading: string): Promise<void> {
  const { page } = seen;
  await page.evaluate(
    `history.pushState(null, '', '/ui/${path}'); dispatchEvent(new PopStateEvent('popstate'))`,
  );
  await page.getByRole('heading', { level: 1, name: heading, exact: true }).waitFor();
}

test('every page passes, some in dark and 320 pixels wide too, and nothing runs out of its side', async () => {
  const { page } = seen;
  const { web } = world.domains;
  await failBackup(world, web);
  const file = await world.backUp(web, new Date(Date.now() - 3_600_000), 3);
  world.node.agent.addState(web.id, { name: 'before-upgrade' });
  const { body } = await world.rest.call('POST', '/api/scheduled-tasks/', {
    body: { verbose_name: 'nightly', action: 'backup', periodicity: 'daily', all: true },
  });
  const schedule = body.id;
  const { task } = await beginBackup(world, world.domains.database);
  world.node.agent.progress(task, 'copy', 1n << 29n, 1n << 31n);
  await logIn(seen, at(''));
  const pages: [string, string][] = [
    ['', 'Overview'],
    ['vms', 'Virtual machines'],
    [`vms/${web.id}`, 'web-1'],
    [`vms/${web.id}/backups`, 'web-1'],
    [`vms/${web.id}/snapshots`, 'web-1'],
    [`vms/${web.id}/disks`, 'web-1'],
    [`vms/${web.id}/guest`, 'web-1'],
    [`vms/${web.id}/events`, 'web-1'],
    [`backup?vm=${web.id}`, 'Back up'],
    [`restore?file=${file}`, 'Restore'],
    ['files', 'Backup files'],
    ['import', 'Import'],
    ['schedules', 'Schedules'],
    [`schedules/${schedule}`, 'nightly'],
    [`schedules/${schedule}/edit`, 'Change a schedule'],
    ['schedules/calendar', 'Calendar'],
    ['tasks', 'Tasks'],
    ['nodes', 'Nodes'],
    ['pools', 'Data pools'],
    ['events', 'Events'],
    ['audit', 'Audit'],
    ['tags', 'Tags'],
    ['users', 'Users'],
    ['users/one/1', 'the-administrator'],
    ['certificates', 'Certificates'],
    ['notifications', 'Notifications'],
    ['settings', 'Settings'],
    ['account', 'Account'],
    ['nowhere', 'There is no such page.'],
  ];
  let before = '';
  for (const [path, heading] of pages) {
    await page.setViewportSize({ width: 1280, height: 900 });
    // loading all programs anew for each page takes long; two pages of one heading could be mistaken for each other
    if (heading === before) await goTo(seen, at(path), heading);
    else await follow(path, heading);
    before = heading;
    await settled(seen);
    await seen.inspect();
    await page.setViewportSize({ width: 320, height: 700 });
    if (IN_DARK.includes(heading)) {
      await page.getByRole('button', { name: 'Dark theme' }).click();
      await seen.inspect(OF_LOOKS);
      await page.getByRole('button', { name: 'Light theme' }).click();
    }
    const width = await page.evaluate('document.documentElement.scrollWidth');
    if (Number(width) > 320) seen.faults.push(`${path}: ${width} pixels wide`);
    for (const name of await page.evaluate<string[]>(OUTSIDE))
      seen.faults.push(`${path}: ${name} is cut off`);
  }
  world.node.agent.succeed(task, {
    file: world.node.agent.setFile({ poolId: world.pool.id, domainId: world.domains.database.id }),
  });
  await ended(world.rest, task);
  expect(seen.faults).toEqual([]);
});

test('what runs out of the side of a narrow page is seen, and a picture that nobody describes', async () => {
  const narrow = await look(world, { width: 320, height: 700 });
  const { page } = narrow;
  await logIn(narrow, at(''));
  expect(await page.evaluate(OUTSIDE)).toEqual([]);
  await page.evaluate(`{
    const far = document.createElement('button');
    far.textContent = 'far';
    far.style.position = 'absolute';
    far.style.left = '400px';
    document.body.append(far);
  }`);
  expect(await page.evaluate(OUTSIDE)).toEqual(['far']);
  expect(narrow.faults).toEqual([]);
  await page.evaluate(`document.body.append(document.createElement('img'))`);
  await narrow.inspect();
  expect(narrow.faults).toEqual([expect.stringMatching(/^axe: image-alt: <img>/)]);
  await narrow.context.close();
});

test('a click is not lost when the page is laid out anew between its press and its release', async () => {
  const own = await look(world);
  const { page } = own;
  await page.goto(at('login'));
  await page.evaluate(`{
    const button = document.createElement('button');
    button.textContent = 'moves';
    button.onmousedown = () => { button.style.marginTop = '300px'; };
    let clicks = 0;
    button.onclick = () => { document.title = String(++clicks); };
    document.body.prepend(button);
  }`);
  await page.getByRole('button', { name: 'moves' }).click();
  expect(await page.title()).toBe('1');
  await page.getByRole('button', { name: 'moves' }).click();
  expect(await page.title()).toBe('2');
  await own.context.close();
});
