/** Power lost in the middle of backup, increment, saved states, their deletion and a revert; see the lab. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { PowerLossLab } from './power-loss-lab.ts';

/** At how many moments, spread over all; `make soak` takes each. A seed alone makes the same ones again. */
const MOMENTS = Number(process.env.VIRTKEEP_POWER_MOMENTS ?? 2);
const SEED = Number(process.env.VIRTKEEP_POWER_SEED ?? 1);

let lab: PowerLossLab;
beforeAll(async () => {
  lab = await PowerLossLab.start(SEED % 2 ? 'ext4' : 'xfs');
  await lab.history();
});
afterAll(() => lab?.stop());

test(`power lost at ${MOMENTS} moments, seed ${SEED}`, async () => {
  // what a merge below the top of a running guest leaves to the last moment
  const [, merged] = lab.ends('remove');
  expect(await lab.loseAt([merged!, ...lab.moments(MOMENTS, SEED)])).toEqual([]);
});
