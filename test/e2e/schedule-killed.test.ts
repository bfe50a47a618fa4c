/** The controller is killed in the middle of a run of a scheduled task: the next one goes on with it, and nothing is done twice. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Guest } from '../lab/guest.ts';
import { waitFor } from '../lab/run.ts';
import { startWorld, type World } from '../lab/world.ts';

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

const PATIENCE_MS = 180_000;

let world: World;
let guests: Guest[];
let ids: string[];

beforeAll(async () => {
  world = await startWorld({ controller: true });
  guests = [];
  for (const name of ['one', 'two', 'three']) guests.push(await world.defineTiny({ name, idle: true }));
  ids = await Promise.all(guests.map(guest => world.known(guest)));
});
afterAll(() => world?.stop());

const partsOf = async (run: string): Promise<Json[]> =>
  (await world.rest.get<Json>(`/api/tasks/?parent=${run}`)).results;

/** A start that was cut off in the middle, so that its node does not know of it: the task is begun anew under another id. */
const isCutOff = ({ error }: Json): boolean => error?.msg_key === 'operation_unknown';

/** When it dies; a part of a run is a task. */
const MOMENTS: Record<string, (run: string) => Promise<boolean>> = {
  'as soon as the run is accepted': async () => true,
  'when a part has begun': async run => (await partsOf(run)).length > 0,
  'when a part has ended': async run => (await partsOf(run)).some(({ status }) => status === 'SUCCESS'),
};

test.each(Object.keys(MOMENTS))('%s', async moment => {
  const task = await world.rest.ok<Json>('POST', '/api/scheduled-tasks/', {
    verbose_name: moment,
    entities: ids,
    start_date: '2099-01-01T00:00:00Z',
    parallel_limit: 1,
    options: { hash_sum: true },
    keep_count: 1,
  });
  for (const isKilled of [true, false]) {
    const { body } = await world.rest.send<Json>('POST', `/api/scheduled-tasks/${task.id}/run/?async=1`, {});
    const run = body._task.id;
    if (isKilled) {
      await waitFor(moment, () => MOMENTS[moment]!(run), PATIENCE_MS, 10);
      await world.controller.daemon.kill();
      await world.controller.daemon.start();
      await world.connected();
    }
    const ended = await world.rest.waitTask(run, PATIENCE_MS);
    const parts = (await partsOf(run)).filter(part => !isCutOff(part));
    // the whole of what went wrong, not its status alone
    const failed = [ended, ...parts].filter(({ status }) => status !== 'SUCCESS');
    expect(failed).toEqual([]);
    const of = (name: string) => parts.filter(part => part.name === name);
    expect([of('domain_backup').length, of('file_verify').length]).toEqual([3, 3]);
    // the first run has nothing to delete, the second the three files of the first
    expect(of('file_remove')).toHaveLength(isKilled ? 0 : 3);
  }
  const { results: runs } = await world.rest.get<Json>(`/api/scheduled-tasks/${task.id}/runs/`);
  expect(runs.map(({ status }: Json) => status)).toEqual(['SUCCESS', 'SUCCESS']);
  await world.rest.ok('POST', `/api/scheduled-tasks/${task.id}/remove/`);
});
