/** What scheduled tasks that make archive after archive leave on their VMs, and when they delete saved states. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { ended, stopAll } from './nodes-world.ts';
import { DAY_MS, ScheduledNode } from './scheduled-node.ts';

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

let world: ScheduledNode;
let pool: Pool;
let vm: Domain;

beforeAll(async () => {
  world = await ScheduledNode.start('2026-03-01T02:00:00Z');
});
beforeEach(async () => {
  ({ pool, vm } = await world.renew());
});
afterEach(async () => {
  for (const { id } of (await world.rest.call('GET', '/api/scheduled-tasks/')).body.results)
    await world.rest.call('POST', `/api/scheduled-tasks/${id}/disable/`);
});
afterAll(() => stopAll(world.rest));

const states = () => world.agent.domains.get(vm.id)!.savedStates;

test.each<[string, object]>([
  ['full on two days of the week', { options: { increment: true }, full_weekdays: ['sun', 'wed'] }],
  [
    'a new archive for every three restore points',
    { options: { increment: true }, keep_states: 3, keep_states_by: 'new_archive' },
  ],
  ['a new archive each day, for increments by hand', { options: { can_be_incremental: true } }],
])('archive after archive leaves no more states on the VM than one: %s', async (_how, settings) => {
  const task = await world.make(settings);
  for (let day = 0; day < 20; day += 1) {
    await world.at(world.now + DAY_MS);
    expect(new Set(states().map(state => state.backupId)).size).toBe(1);
    expect(states().length).toBeLessThanOrEqual(3);
  }
  expect((await world.get(task.id)).last_run.status).toBe('SUCCESS');
  const files = await world.filesOf(vm.id);
  expect(files.length).toBeGreaterThan(4);
  expect(files.filter(file => file.can_be_incremental).map(file => file.id)).toEqual([files.at(-1).id]);
});

test('while states are held, those of an archive stay as long as it does', async () => {
  await world.make({
    options: { increment: true, hold_states: true },
    keep_states: 4,
    keep_states_by: 'new_archive',
    keep_count: 2,
  });
  for (let day = 0; day < 22; day += 1) await world.at(world.now + DAY_MS);
  // what retention deletes after a run is told to the next one
  const points = (await world.filesOf(vm.id)).map(file => file.states.map((state: Json) => state.name));
  expect(points.map(names => names.length)).toEqual([4, 2]);
  expect(states().map(state => state.name)).toEqual(points.flat());
});

describe('the limit of increments', () => {
  test('deletes all saved states after as many, however many were made by hand', async () => {
    const task = await world.make({ options: { increment: true }, increment_limit: 2 });
    for (const name of ['one', 'two', 'three']) world.agent.addState(vm.id, { name });
    const modes: string[] = [];
    const left: number[] = [];
    for (let day = 0; day < 4; day += 1) {
      await world.at(world.now + DAY_MS);
      modes.push((await world.get(task.id, 'runs/')).results[0].parts[0].mode);
      left.push(states().filter(state => state.backupId === '').length);
    }
    expect(modes).toEqual(['full', 'increment', 'increment', 'full']);
    expect(left).toEqual([3, 3, 0, 0]);
  });

  test('deletes no state for increments that the task did not make, and begins anew', async () => {
    const body = { domain: vm.id, increment: true, datapool: pool.id };
    for (let count = 0; count < 4; count += 1) {
      const { body: begun } = await world.rest.call('POST', '/api/domains/backup/?async=1', { body });
      await ended(world.rest, begun._task.id);
    }
    const before = states().map(state => state.name);
    expect(before).toHaveLength(3);
    const task = await world.make({ options: { increment: true }, increment_limit: 2 });
    await world.at(world.now + DAY_MS);
    expect((await world.get(task.id, 'runs/')).results[0].parts[0]).toMatchObject({
      mode: 'full',
      notes: [expect.stringContaining('limit of increments')],
    });
    expect(states().map(state => state.name)).toEqual(expect.arrayContaining(before));
  });
});
