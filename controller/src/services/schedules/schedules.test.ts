/** Tasks that are changed while the scheduler is at them. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { DUE } from './sample-files.ts';
import type { Scheduler } from './scheduler.ts';
import { ScheduleService, type ScheduleServiceDependencies } from './schedules.ts';
import { ScheduleWorld } from './test-kit.ts';

let world: ScheduleWorld;
let schedules: ScheduleService;
beforeEach(async () => {
  world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
  const nothing = { domains: new Map(), nodes: new Map(), pools: new Map() };
  schedules = new ScheduleService({
    store: world.store,
    scheduler: world.scheduler,
    tasks: world.tasks,
    clock: { now: () => new Date(world.now) },
    inventory: nothing,
    tags: {},
    tell: () => {},
  } as unknown as ScheduleServiceDependencies);
});
afterEach(() => world.close());

/** Settles when somebody who wants to be alone with a task has to wait for that. */
function waits(scheduler: Scheduler): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const exclusively = scheduler.exclusively.bind(scheduler);
  scheduler.exclusively = (id, work) => {
    let hasBegun = false;
    setImmediate(() => hasBegun || resolve());
    return exclusively(id, () => {
      hasBegun = true;
      return work();
    });
  };
  return promise;
}

test('a task that is changed while it becomes due has one run, and none that is skipped', async () => {
  const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
  await world.tick('2026-03-01T01:59:59Z');
  const { store, scheduler } = world;
  let ticking: Promise<void> | undefined;
  store.updateTask = async (id, columns) => {
    Reflect.deleteProperty(store, 'updateTask');
    const waiting = waits(scheduler);
    ticking = world.tick(DUE);
    await Promise.race([ticking, waiting]);
    return store.updateTask(id, columns);
  };
  await schedules.update(task.id, { retries: 1 });
  await ticking;
  await world.tick(world.now + 5_000);
  expect(await world.runs(task)).toMatchObject([{ due: '2026-03-01T02:00:00.000Z', status: 'RUNNING' }]);
  expect(world.toldNotRun).toEqual([]);
});

test('a task that is changed while what is due next is reckoned anew is due as it is now', async () => {
  const { store, scheduler } = world;
  const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
  // as the rules of its zone were before
  await store.updateTask(task.id, { next_run: '2026-03-01T03:00:00.000Z' });
  store.tasks = async () => {
    Reflect.deleteProperty(store, 'tasks');
    const rows = await store.tasks();
    await schedules.update(task.id, { start_date: '2026-03-01T22:00:00Z' });
    return rows;
  };
  await scheduler.load();
  expect((await store.task(task.id))!.next_run).toBe('2026-03-01T22:00:00.000Z');
});
