/** The management pages of an installation of ten thousand virtual machines: found, ordered, tagged and backed up, and live all the while. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { idOf, nameOf } from '../scale/seeded.ts';
import {
  ALL,
  NODES,
  PER_PAGE,
  Pump,
  running,
  STEPS,
  startScaleWorld,
  VMS,
  type WebScaleWorld,
  whenSo,
} from './web-scale-world.ts';
import { logIn, look, type Watched } from './web-world.ts';

const PER_SECOND = 200;
const TABS = 8;

let web: WebScaleWorld;
let seen: Watched;
let page: Page;

beforeAll(async () => {
  web = await startScaleWorld();
});
afterAll(() => web?.close());

beforeEach(async () => {
  seen = await look(web);
  page = seen.page;
});
afterEach(async () => {
  await seen.context.close();
  expect(seen.faults).toEqual([]);
});

const at = (path: string) => `${web.url}${path}`;
const button = (name: string) => page.getByRole('button', { name, exact: true });
const field = (name: string) => page.getByLabel(name, { exact: true });
const names = () => page.getByRole('grid', { name: 'Virtual machines' }).locator('tbody a');
/** Which of how many are shown, as the head of a list says it. */
const shows = (from: number, to: number, count: number) =>
  page
    .locator('#options-menu-top-toggle')
    .filter({ hasText: new RegExp(`^${from} - ${to}\\s+of\\s+${count}\\s*$`) })
    .waitFor();

/** What the controller has at this place of its list. */
async function expected(offset: number, limit: number, more = ''): Promise<string[]> {
  const path = `/api/domains/?limit=${limit}&offset=${offset}&fields=verbose_name${more}`;
  const { body } = await web.world.rest.call('GET', path);
  return body.results.map((one: { verbose_name: string }) => one.verbose_name);
}

/** Waits until these are the rows, in this order. */
async function listed(wanted: readonly string[]): Promise<void> {
  await names()
    .nth(wanted.length - 1)
    .filter({ hasText: wanted.at(-1)! })
    .waitFor();
  expect(await names().allTextContents()).toEqual(wanted);
}

test('one goes to the middle and the end, and chooses how long a page is', async () => {
  await logIn(seen, at('vms'));
  await shows(1, PER_PAGE, ALL);
  await listed(await expected(0, PER_PAGE));
  await seen.inspect();
  await button('Next page').click();
  await listed(await expected(PER_PAGE, PER_PAGE));
  const middle = ALL / PER_PAGE / 2;
  await field('Page').fill(String(middle));
  await field('Page').press('Enter');
  await shows(ALL / 2 - PER_PAGE + 1, ALL / 2, ALL);
  await listed(await expected(ALL / 2 - PER_PAGE, PER_PAGE));
  await button('Last page').click();
  await shows(ALL - PER_PAGE + 1, ALL, ALL);
  await listed(await expected(ALL - PER_PAGE, PER_PAGE));
  expect(await button('Next page').isDisabled()).toBe(true);
  // the place stands in the address
  await page.reload();
  await listed(await expected(ALL - PER_PAGE, PER_PAGE));
  for (const length of [200, 20]) {
    await page.locator('#options-menu-top-toggle').click();
    await page.getByRole('menuitem', { name: `${length} per page` }).click();
    await shows(1, length, ALL);
    await listed(await expected(0, length));
  }
});

test('one is found by its name, some by each filter, and columns order them', async () => {
  await logIn(seen, at('vms'));
  await shows(1, PER_PAGE, ALL);
  const wanted = nameOf(NODES - 1, VMS - 1);
  await field('Search by name').fill(wanted);
  await shows(1, 1, 1);
  await listed([wanted]);
  await button('Clear').click();
  await shows(1, PER_PAGE, ALL);

  await field('Power').selectOption({ label: 'Off' });
  await shows(1, PER_PAGE, ALL / 5);
  await field('Node').selectOption({ label: 'node-7' });
  await shows(1, PER_PAGE, VMS / 5);
  await listed(await expected(0, PER_PAGE, `&user_power_state=1&node=${idOf('node', 7)}`));
  await field('Protection').selectOption({ label: 'Protected' });
  await page.getByText('Nothing matches.').waitFor();
  await button('Clear all filters').click();
  await field('Protection').selectOption({ label: 'Late' });
  await shows(1, PER_PAGE, ALL);

  const order = (column: string) => page.getByRole('columnheader', { name: column }).getByRole('button');
  const isOrdered = (column: string, way: string) =>
    page.locator(`th[aria-sort="${way}"]`).filter({ hasText: column }).waitFor();
  await isOrdered('Name', 'ascending');
  await button('Next page').click();
  for (const [column, by] of [
    ['Memory', 'memory_count'],
    ['Power', 'user_power_state'],
  ] as const)
    for (const [way, ordering] of [
      ['ascending', by],
      ['descending', `-${by}`],
    ] as const) {
      await order(column).click();
      await isOrdered(column, way);
      // from the first page on
      await shows(1, PER_PAGE, ALL);
      await listed(await expected(0, PER_PAGE, `&ordering=${ordering}`));
    }
  await seen.inspect();
});

/** Waits until a tab shows all tasks, and each of them has moved since. */
async function moves(tab: Page): Promise<void> {
  await whenSo(tab, `${STEPS}.length === ${PER_PAGE}`);
  const before = await tab.evaluate(STEPS);
  await whenSo(tab, `${STEPS}.every((now, index) => now !== ${JSON.stringify(before)}[index])`);
}

test('a page of them is tagged and backed up; all fifty tasks move, in eight tabs over one stream', async () => {
  await logIn(seen, at('vms'));
  await listed(await expected(0, PER_PAGE));
  await field('Select all of this page').check();
  await page.getByText(`${PER_PAGE} selected`, { exact: false }).waitFor();
  await button(`Actions of the ${PER_PAGE} selected`).click();
  await page.getByRole('menuitem', { name: 'Tag', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.locator('#tag-which').selectOption({ label: 'Make a tag' });
  await dialog.locator('#tag-new').fill('first');
  await dialog.getByRole('button', { name: 'Add the tag' }).click();
  await dialog.waitFor({ state: 'detached' });
  await page
    .locator('tbody tr')
    .filter({ hasText: 'first' })
    .nth(PER_PAGE - 1)
    .waitFor();
  await field('Tag').selectOption({ label: 'first' });
  await shows(1, PER_PAGE, PER_PAGE);

  await button('Back up selected').click();
  await page.getByText(`${PER_PAGE} machines`).first().waitFor();
  await button('Next').click();
  await button('Next').click();
  await button('Start backup').click();
  await page.getByRole('heading', { level: 1, name: 'Tasks' }).waitFor();
  await web.world.when(() => running(web.world).length === PER_PAGE);
  await page.evaluate(`localStorage.setItem('virtkeep.perPage', '200')`);
  await page.goto(at('tasks?status=IN_PROGRESS'));
  await whenSo(page, `${STEPS}.length === ${PER_PAGE}`);
  await seen.inspect();
  const pump = new Pump(running(web.world), PER_SECOND);
  try {
    await moves(page);
    // the pages answer all the while
    await page.getByRole('link', { name: 'Nodes', exact: true }).click();
    await page.getByRole('grid', { name: 'Nodes' }).getByRole('row').nth(NODES).waitFor();
    await page.goBack();
    await moves(page);

    const tabs = [page];
    while (tabs.length < TABS) {
      const tab = await seen.context.newPage();
      await tab.goto(at('tasks?status=IN_PROGRESS'));
      tabs.push(tab);
    }
    for (const tab of tabs) await moves(tab);
    await web.world.when(() => web.streams() === 1);
    // the tab that holds the stream is loaded anew: another one takes it over
    await page.reload();
    for (const tab of tabs) await moves(tab);
    await web.world.when(() => web.streams() === 1);
  } finally {
    pump.stop();
  }
  for (const { agent, id } of running(web.world)) agent.succeed(id);
  await page.goto(at('tasks?status=SUCCESS'));
  await page
    .getByRole('row')
    .filter({ hasText: 'Back up vm-' })
    .nth(PER_PAGE - 1)
    .waitFor();
  await page.goto(at('vms?protection=protected'));
  await shows(1, PER_PAGE, PER_PAGE);
});
