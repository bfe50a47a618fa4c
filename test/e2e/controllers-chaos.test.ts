import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { runTrial } from '../cluster/trial.ts';
import { ClusterWorld } from '../cluster/world.ts';

const DURATION_MS = 90_000;
const SEED = 20_261_126;

let world: ClusterWorld;

beforeAll(async () => {
  world = new ClusterWorld();
  await world.start({ controllers: 3, nodes: 4, vms: 5 });
  await world.tellAgents({ do: 'pace', pace: { steps: 5, stepMs: 400 } });
  world.keepRunning();
});

afterAll(() => world.end());

test('whatever happens to controllers and their database, nothing is lost, doubled, stuck or answered wrong', async () => {
  const { notes, faults, happened, impatient } = await runTrial(world, {
    durationMs: DURATION_MS,
    seed: SEED,
  });
  process.stdout.write(
    `${happened.map(({ what }) => what).join(', ')}: ${notes.calls} calls, ${notes.backups.length} backups, at most ${notes.mostAttempts} attempts, ${Math.round(notes.slowestMs)} ms\n${impatient.join('\n')}\n`,
  );
  expect(faults).toEqual([]);
  expect(notes.backups.length).toBeGreaterThan(5);
});
