/**
 * The management pages with ten thousand virtual machines on simulated nodes, in Debian's Chromium: what a browser loads before somebody
 * logs in, from a click to the painted list, what fifty running tasks cost the page, and how late eight tabs are.
 * `node test/bench/web.ts [--quick]`
 */
import { existsSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { buildPages, PAGES } from '../../packaging/web.ts';
import {
  ALL,
  beginBackups,
  PER_PAGE,
  PERCENTS,
  Pump,
  type Running,
  STEPS,
  startScaleWorld,
  TOTAL_BYTES,
  whenSo,
} from '../e2e/web-scale-world.ts';
import { logIn, look } from '../e2e/web-world.ts';
import { type BenchRow, benchOptions, median, printTable } from './lib.ts';

const { quick } = benchOptions();
const ROUNDS = quick ? 5 : 9;
const WATCHED_MS = quick ? 4000 : 10_000;
/** What fifty backups tell together, 9 times a second each. */
const PER_SECOND = 450;
const TABS = 8;
const SHELL_KB = 200;
const PAINT_MS = 350;
const MAIN_THREAD_PERCENT = 35;
/** In a page: whether its list has all rows. */
const ROWS = `document.querySelectorAll('tbody a').length >= ${PER_PAGE}`;

await buildPages();
const web = await startScaleWorld();
const rows: BenchRow[] = [];
try {
  const seen = await look(web);
  const { page, context } = seen;
  rows.push(await shell(page));
  await logIn(seen, `${web.url}vms`);
  rows.push(await nextPage(page));
  rows.push(await fromElsewhere(page));
  const tasks = await beginBackups(web.world);
  await page.evaluate(`localStorage.setItem('virtkeep.perPage', '200')`);
  rows.push(await fiftyTasks(page, tasks));
  const tabs = [page];
  while (tabs.length < TABS) tabs.push(await context.newPage());
  rows.push(...(await eightTabs(tabs, tasks)));
  for (const { agent, id } of tasks) agent.succeed(id);
} finally {
  await web.close();
}
process.exitCode = printTable(`management pages, ${ALL} virtual machines`, rows) ? 0 : 1;

/** Scripts that a browser loads to show the login, as they are packed for it. */
async function shell(page: Page): Promise<BenchRow> {
  const packed = new Map<string, number>();
  page.on('response', response => {
    if (response.request().resourceType() !== 'script') return;
    const file = join(PAGES, 'assets', `${basename(new URL(response.url()).pathname)}.gz`);
    if (existsSync(file)) packed.set(file, statSync(file).size);
  });
  await page.goto(web.url);
  await page.getByLabel('User name').waitFor();
  const bytes = [...packed.values()].reduce((sum, size) => sum + size, 0);
  if (bytes === 0) throw new Error('no script was loaded');
  return { name: 'scripts before the login, gzip', value: bytes / 1000, unit: 'kB', target: SHELL_KB };
}

/**
 * From the click to the frame after the one in which the list has its rows.
 * @param button as a selector
 * @param isThere whether the page shows what was asked for, in JavaScript
 * @returns ms
 */
function clickToPaint(page: Page, button: string, isThere: string): Promise<number> {
  return page.evaluate(`new Promise(resolve => {
    const before = document.querySelector('tbody a')?.textContent;
    const isThere = () => ${isThere};
    const painted = () => requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - from)));
    const watch = new MutationObserver(() => {
      if (!isThere()) return;
      watch.disconnect();
      painted();
    });
    watch.observe(document.body, { childList: true, subtree: true, characterData: true });
    const from = performance.now();
    document.querySelector(${JSON.stringify(button)}).click();
  })`);
}

async function nextPage(page: Page): Promise<BenchRow> {
  await whenSo(page, ROWS);
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const isNext = `${ROWS} && document.querySelector('tbody a').textContent !== before`;
    times.push(await clickToPaint(page, 'button[aria-label="Next page"]', isNext));
    await idle(page);
  }
  return paintRow(`the next ${PER_PAGE}, click to paint`, times);
}

async function fromElsewhere(page: Page): Promise<BenchRow> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await page.getByRole('link', { name: 'Data pools', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Data pools' }).waitFor();
    await idle(page);
    times.push(await clickToPaint(page, 'nav a[href$="/vms"]', ROWS));
    await idle(page);
  }
  return paintRow(`the first ${PER_PAGE}, from another page`, times);
}

function paintRow(name: string, times: readonly number[]): BenchRow {
  const note = `${times.length} times, the longest ${Math.max(...times).toFixed(0)} ms`;
  return { name, value: median(times), unit: 'ms', target: PAINT_MS, note };
}

/** Until the page has nothing left to do. */
async function idle(page: Page): Promise<void> {
  await page.evaluate('new Promise(resolve => requestIdleCallback(resolve))');
}

/** @returns reads for how many seconds the page's main thread has worked since, by the clock and by its processor time */
async function workOf(page: Page): Promise<() => Promise<{ clock: number; processor: number }>> {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable');
  return async () => {
    const { metrics } = await session.send('Performance.getMetrics');
    const value = (wanted: string) => metrics.find(({ name }) => name === wanted)?.value ?? Number.NaN;
    return { clock: value('TaskDuration'), processor: value('ThreadTime') };
  };
}

async function showTasks(page: Page): Promise<void> {
  await page.goto(`${web.url}tasks?status=IN_PROGRESS`);
  await whenSo(page, `${STEPS}.length === ${PER_PAGE}`);
}

async function fiftyTasks(page: Page, tasks: readonly Running[]): Promise<BenchRow> {
  await showTasks(page);
  const pump = new Pump(tasks, PER_SECOND);
  // what begins and compiles is over
  await sleep(WATCHED_MS / 3);
  const work = await workOf(page);
  const [before, fromMs] = [await work(), performance.now()];
  await sleep(WATCHED_MS);
  const [after, ms] = [await work(), performance.now() - fromMs];
  const told = pump.stop();
  const percent = (seconds: number) => (100_000 * seconds) / ms;
  return {
    name: `${PER_PAGE} running tasks, of the main thread`,
    value: percent(after.clock - before.clock),
    unit: '%',
    target: MAIN_THREAD_PERCENT,
    note: `${PER_SECOND} changes a second (${told} told); ${percent(after.processor - before.processor).toFixed(1)} % of a core`,
  };
}

/** How long after a node tells of it each of the tabs shows it, while all the tasks move. */
async function eightTabs(tabs: readonly Page[], tasks: readonly Running[]): Promise<BenchRow[]> {
  for (const tab of tabs) await showTasks(tab);
  const [probe, ...others] = tasks;
  const pump = new Pump(others, PER_SECOND);
  const lates: number[] = [];
  // further than the others come
  for (let percent = 10; percent < 10 + ROUNDS; percent += 1) {
    await sleep(300);
    const fromMs = performance.now();
    probe!.agent.progress(probe!.id, Math.ceil((TOTAL_BYTES * percent) / 100), TOTAL_BYTES);
    const shown = tabs.map(async tab => {
      await whenSo(tab, `${PERCENTS}.includes(${percent})`);
      return performance.now() - fromMs;
    });
    lates.push(...(await Promise.all(shown)));
  }
  pump.stop();
  const streams = web.streams();
  return [
    {
      name: `a change, until it is shown in ${TABS} tabs`,
      value: median(lates),
      unit: 'ms',
      note: `the longest ${Math.max(...lates).toFixed(0)} ms; looked at every 20 ms`,
    },
    { name: `streams of ${TABS} tabs`, value: streams, unit: '', target: 1 },
  ];
}
