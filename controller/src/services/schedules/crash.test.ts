/** The controller dies at each write to its database, in the middle of runs, of retention, and between a decision and its record. */
import { expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ScheduleWorld } from './test-kit.ts';

const DUE = '2026-03-01T02:00:00Z';

/** The nodes go on with what they were told, and tell of it to whichever controller is there. */
async function goOn(world: ScheduleWorld): Promise<void> {
  for (let round = 0; round < 20; round += 1) {
    await world.tick(world.now + 5_000);
    const open = (await world.tasks.unfinished()).filter(({ row }) => row.is_multitask === 0);
    if (open.length === 0 && (await world.store.running()).length === 0) return;
    for (const task of open) await world.nodeEnds(task);
    await world.scheduler.settled();
  }
  throw new Error('the run does not end');
}

async function story(writes: number): Promise<{ world: ScheduleWorld; died: boolean }> {
  const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
  for (const vm of world.vms) for (const old of ['1', '2']) world.files.add(`${vm}-${old}`);
  world.files.add('another');
  await world.add({ verbose_name: 'nightly', start_date: DUE, parallel_limit: 2 });
  world.now = Date.parse(DUE);
  world.mortality.writesLeft = writes;
  await goOn(world).catch(() => {});
  const died = world.mortality.writesLeft < 0;
  if (died) {
    await world.restart();
    await goOn(world);
  }
  return { world, died };
}

test('what its node does not know, since the start was cut off, is begun anew, whatever step it is', async () => {
  const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
  world.files.add('a-1');
  const task = await world.add({ verbose_name: 'nightly', start_date: DUE, entities: ['a'], all: false });
  world.now = Date.parse(DUE);
  const tried = new Map<string, number>();
  for (let isOver = false; !isOver; ) {
    await world.tick(world.now + 5_000);
    const open = (await world.tasks.unfinished()).filter(({ row }) => row.is_multitask === 0);
    for (const one of open) {
      const before = tried.get(one.row.name) ?? 0;
      tried.set(one.row.name, before + 1);
      if (before > 0) await world.nodeEnds(one);
      else
        await world.tasks.finish(one.row.id, {
          status: 'FAILED',
          error: new VirtkeepError('operation_unknown', { node: 'n1' }),
        });
      await world.scheduler.settled();
    }
    isOver = open.length === 0 && (await world.store.running()).length === 0;
  }
  expect(await world.runs(task)).toMatchObject([{ status: 'SUCCESS' }]);
  expect(Object.fromEntries(tried)).toEqual({ backup: 2, file_remove: 2 });
  expect(world.removed).toEqual(['a-1']);
  const decisions = await world.disk.selectFrom('retention_decisions').selectAll().execute();
  expect(decisions).toMatchObject([{ filename: 'a-1', status: 'REMOVED' }]);
  await world.close();
});

async function isWhole(world: ScheduleWorld): Promise<void> {
  const runs = await world.disk.selectFrom('scheduled_runs').selectAll().execute();
  expect(runs.map(({ due_time, status }) => [due_time, status])).toEqual([
    ['2026-03-01T02:00:00.000Z', 'SUCCESS'],
  ]);
  const tasks = await world.disk.selectFrom('tasks').selectAll().execute();
  expect(tasks.filter(({ status }) => status !== 'SUCCESS')).toEqual([]);
  const of = (name: string) =>
    tasks
      .filter(task => task.name === name)
      .map(task => task.verbose_name)
      .sort();
  expect(of('scheduled_run')).toEqual(['nightly']);
  expect(of('backup')).toEqual(['backup a', 'backup b', 'backup c']);
  expect(of('file_remove')).toEqual(['a-1', 'a-2', 'b-1', 'b-2', 'c-1', 'c-2']);
  expect(world.removed.sort()).toEqual(['a-1', 'a-2', 'b-1', 'b-2', 'c-1', 'c-2']);
  expect([...world.files]).toEqual(['another']);
  const decisions = await world.disk
    .selectFrom('retention_decisions')
    .select(['filename', 'status'])
    .execute();
  expect(decisions.map(({ filename }) => filename).sort()).toEqual(world.removed);
  expect(new Set(decisions.map(({ status }) => status))).toEqual(new Set(['REMOVED']));
  expect(new Set(world.reported).size).toBe(1);
}

test('nothing is lost, doubled, or deleted that the plan did not name, wherever it dies', async () => {
  let deaths = 0;
  for (let writes = 0; ; writes += 1) {
    const { world, died } = await story(writes);
    try {
      await isWhole(world);
    } catch (error) {
      throw new Error(`dead after ${writes} writes`, { cause: error });
    } finally {
      await world.close();
    }
    if (!died) break;
    deaths += 1;
  }
  expect(deaths).toBeGreaterThan(50);
});
