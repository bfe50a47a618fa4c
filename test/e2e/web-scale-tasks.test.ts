/** The management pages of an installation of ten thousand virtual machines: some of them tagged and backed up, and live all the while. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import {
  MachinesPage,
  NODES,
  PER_PAGE,
  Pump,
  running,
  STEPS,
  startScaleWorld,
  type WebScaleWorld,
  whenSo,
} from './web-scale-world.ts';
import { logIn, look, type Watched } from './web-world.ts';

const PER_SECOND = 200;
const TABS = 8;

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

/** Waits until a tab shows all tasks, and each of them has moved since. */
async function moves(tab: Page): Promise<void> {
  await whenSo(tab, `${STEPS}.length === ${PER_PAGE}`);
  const before = await tab.evaluate(STEPS);
  await whenSo(tab, `${STEPS}.every((now, index) => now !== ${JSON.stringify(before)}[index])`);
}

test('a page of them is tagged and backed up; all fifty tasks move, in eight tabs over one stream', async () => {
  await logIn(seen, `${web.url}vms`);
  await vms.listed(await vms.expected(0, PER_PAGE));
  await vms.field('Select all of this page').check();
  await page.getByText(`${PER_PAGE} selected`, { exact: false }).waitFor();
  await vms.button(`Actions of the ${PER_PAGE} selected`).click();
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
  await vms.field('Tag').selectOption({ label: 'first' });
  await vms.shows(1, PER_PAGE, PER_PAGE);

  await vms.button('Back up selected').click();
  await page.getByText(`${PER_PAGE} machines`).first().waitFor();
  await vms.button('Next').click();
  await vms.button('Next').click();
  await vms.button('Start backup').click();
  await page.getByRole('heading', { level: 1, name: 'Tasks' }).waitFor();
  await web.world.when(() => running(web.world).length === PER_PAGE);
  await page.evaluate(`localStorage.setItem('virtkeep.perPage', '200')`);
  await page.goto(`${web.url}tasks?status=IN_PROGRESS`);
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
      await tab.goto(`${web.url}tasks?status=IN_PROGRESS`);
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
  await page.goto(`${web.url}tasks?status=SUCCESS`);
  await page
    .getByRole('row')
    .filter({ hasText: 'Back up vm-' })
    .nth(PER_PAGE - 1)
    .waitFor();
  await page.goto(`${web.url}vms?protection=protected`);
  await vms.shows(1, PER_PAGE, PER_PAGE);
});
