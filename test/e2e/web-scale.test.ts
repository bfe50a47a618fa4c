/** The list of virtual machines of an installation of ten thousand of them: found, and ordered. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { idOf, nameOf } from '../scale/seeded.ts';
import {
  ALL,
  MachinesPage,
  NODES,
  PER_PAGE,
  startScaleWorld,
  VMS,
  type WebScaleWorld,
} from './web-scale-world.ts';
import { logIn, look, type Watched } from './web-world.ts';

let web: WebScaleWorld;
let seen: Watched;
let page: Page;
let vms: MachinesPage;

beforeAll(async () => {
  web = await startScaleWorld();
});
afterAll(() => web?.close());

beforeEach(async () => {
  seen = await look(web);
  page = seen.page;
  vms = new MachinesPage(web, page);
});
afterEach(async () => {
  await seen.context.close();
  expect(seen.faults).toEqual([]);
});

test('one goes to the middle and the end, and chooses how long a page is', async () => {
  await logIn(seen, `${web.url}vms`);
  await vms.shows(1, PER_PAGE, ALL);
  await vms.listed(await vms.expected(0, PER_PAGE));
  await seen.inspect();
  await vms.button('Next page').click();
  await vms.listed(await vms.expected(PER_PAGE, PER_PAGE));
  const middle = ALL / PER_PAGE / 2;
  await vms.field('Page').fill(String(middle));
  await vms.field('Page').press('Enter');
  await vms.shows(ALL / 2 - PER_PAGE + 1, ALL / 2, ALL);
  await vms.listed(await vms.expected(ALL / 2 - PER_PAGE, PER_PAGE));
  await vms.button('Last page').click();
  await vms.shows(ALL - PER_PAGE + 1, ALL, ALL);
  await vms.listed(await vms.expected(ALL - PER_PAGE, PER_PAGE));
  expect(await vms.button('Next page').isDisabled()).toBe(true);
  // the place stands in the address
  await page.reload();
  await vms.listed(await vms.expected(ALL - PER_PAGE, PER_PAGE));
  for (const length of [200, 20]) {
    await page.locator('#options-menu-top-toggle').click();
    await page.getByRole('menuitem', { name: `${length} per page` }).click();
    await vms.shows(1, length, ALL);
    await vms.listed(await vms.expected(0, length));
  }
});

test('one is found by its name, some by each filter, and columns order them', async () => {
  await logIn(seen, `${web.url}vms`);
  await vms.shows(1, PER_PAGE, ALL);
  const wanted = nameOf(NODES - 1, VMS - 1);
  await vms.field('Search by name').fill(wanted);
  await vms.shows(1, 1, 1);
  await vms.listed([wanted]);
  await vms.button('Clear').click();
  await vms.shows(1, PER_PAGE, ALL);

  await vms.field('Power').selectOption({ label: 'Off' });
  await vms.shows(1, PER_PAGE, ALL / 5);
  await vms.field('Node').selectOption({ label: 'node-7' });
  await vms.shows(1, PER_PAGE, VMS / 5);
  await vms.listed(await vms.expected(0, PER_PAGE, `&user_power_state=1&node=${idOf('node', 7)}`));
  await vms.field('Protection').selectOption({ label: 'Protected' });
  await page.getByText('Nothing matches.').waitFor();
  await vms.button('Clear all filters').click();
  await vms.field('Protection').selectOption({ label: 'Late' });
  await vms.shows(1, PER_PAGE, ALL);

  const order = (column: string) => page.getByRole('columnheader', { name: column }).getByRole('button');
  const isOrdered = (column: string, way: string) =>
    page.locator(`th[aria-sort="${way}"]`).filter({ hasText: column }).waitFor();
  await isOrdered('Name', 'ascending');
  await vms.button('Next page').click();
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
      await vms.shows(1, PER_PAGE, ALL);
      await vms.listed(await vms.expected(0, PER_PAGE, `&ordering=${ordering}`));
    }
  await seen.inspect();
});
