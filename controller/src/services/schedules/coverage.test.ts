import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { verdictOf } from '../protection/rules.ts';
import { ScheduleCoverage } from './coverage.ts';
import { Ticker } from './create.ts';
import type { DefinitionInput } from './definition.ts';
import { ScheduleWorld, SILENT } from './test-kit.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const BEGIN = Date.parse('2026-01-01T00:00:00Z');

let world: ScheduleWorld;
let coverage: ScheduleCoverage;
beforeEach(async () => {
  world = await ScheduleWorld.open('2026-01-01T00:00:00Z');
  coverage = new ScheduleCoverage({
    store: world.store,
    clock: { now: () => new Date(world.now) },
    targets: ({ entities }) => ({
      found: entities.map(id => ({ id, name: id, nodeIds: [], tags: [] })),
      missing: [],
    }),
    graceMs: () => 6 * HOUR_MS,
    queue: () => ({ length: 0, oldest: null }),
    log: SILENT,
  });
});
afterEach(() => world.close());

/** Of the VM of a task that was made at the beginning, so long after; it was backed up when told. */
async function stateAfter(days: number, lastGood: number): Promise<string> {
  world.now = BEGIN + days * DAY_MS;
  await coverage.refresh();
  const expectations = coverage.expectationsOf('a');
  const facts = {
    isExcluded: false,
    lastGood,
    lastPartial: null,
    lastAttempt: null,
    expectations,
    maxAgeMs: 7 * DAY_MS,
  };
  return verdictOf(facts, world.now).state;
}

const covering = (input: DefinitionInput) =>
  world.add({ all: false, entities: ['a'], time_zone: 'UTC', start_date: '2026-01-01T02:00:00Z', ...input });

test('a task that is due once keeps its VM protected no longer than no task would', async () => {
  await covering({ periodicity: 'once' });
  const backedUp = BEGIN + 2 * HOUR_MS;
  expect(await stateAfter(6, backedUp)).toBe('protected');
  for (const days of [8, 30, 300, 500])
    expect([days, await stateAfter(days, backedUp)]).toEqual([days, 'late']);
  expect(await stateAfter(1, backedUp - DAY_MS)).toBe('late');
});

test('a task that is seldom due asks for its last due time, however long ago', async () => {
  await covering({ periodicity: 'cron', cron: '0 2 29 2 *' });
  const leapDay = Date.parse('2028-02-29T02:00:00Z');
  const days = (leapDay - BEGIN) / DAY_MS + 900;
  expect(await stateAfter(days, leapDay)).toBe('protected');
  expect(await stateAfter(days, leapDay - DAY_MS)).toBe('late');
});

test('a task that was never due asks for what it will ask for, and silences nothing that is older', async () => {
  await covering({ periodicity: 'monthly', month_day: 1, start_date: '2026-06-01T02:00:00Z' });
  // its start was moved from the first of May
  const may = Date.parse('2026-05-01T02:00:00Z');
  const untilDue = (Date.parse('2026-06-01T07:59:00Z') - BEGIN) / DAY_MS;
  expect(await stateAfter(untilDue, may)).toBe('protected');
  expect(await stateAfter(untilDue, may - DAY_MS)).toBe('late');
  expect(await stateAfter(untilDue + 1, may)).toBe('late');
});

test('nobody is told of VMs before it is known what tasks promise, and a bad task hides no other', async () => {
  await covering({ periodicity: 'daily' });
  const broken = await covering({ periodicity: 'daily' });
  await world.store.updateTask(broken.id, { definition_json: '{' });
  const seen: number[] = [];
  const quiet = async () => {};
  const ticker = new Ticker({
    scheduler: { tick: quiet, stop: quiet },
    coverage,
    notices: { tick: async () => void seen.push(coverage.expectationsOf('a').length) },
    log: SILENT,
  });
  await world.disk.schema.alterTable('scheduled_tasks').renameTo('away').execute();
  await ticker.tick();
  expect(seen).toEqual([]);
  await world.disk.schema.alterTable('away').renameTo('scheduled_tasks').execute();
  await ticker.tick();
  expect(seen).toEqual([1]);
});

test('a task that is made while the others are looked through is seen the next time', async () => {
  const first = coverage.refresh();
  await covering({ periodicity: 'daily' });
  coverage.changed();
  await first;
  await coverage.refresh();
  expect(coverage.expectationsOf('a')).toHaveLength(1);
});

test('it is of another version when it promises something else of a VM, and only then', async () => {
  const versions: unknown[] = [coverage.version];
  const again = async (hours: number) => {
    world.now = BEGIN + hours * HOUR_MS;
    coverage.changed();
    await coverage.refresh();
    if (versions.at(-1) !== coverage.version) versions.push(coverage.version);
    return versions.length;
  };
  expect(await again(0)).toBe(1);
  const task = await covering({ periodicity: 'daily' });
  expect(await again(0)).toBe(2);
  expect(await again(1)).toBe(2);
  // it was due, and the grace is over
  expect(await again(9)).toBe(3);
  expect(await again(10)).toBe(3);
  await world.store.updateTask(task.id, { enabled: 0 });
  expect(await again(10)).toBe(4);
  expect(coverage.expectationsOf('a')).toEqual([]);
});
