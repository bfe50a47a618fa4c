/** What scheduled tasks that make archive after archive leave on their VMs. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { stopAll } from './nodes-world.ts';
import { DAY_MS, ScheduledNode } from './scheduled-node.ts';

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

let world: ScheduledNode;
let vm: Domain;

beforeAll(async () => {
  world = await ScheduledNode.start('2026-03-01T02:00:00Z');
});
beforeEach(async () => {
  ({ vm } = await world.renew());
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
