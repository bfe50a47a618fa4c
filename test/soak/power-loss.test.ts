/** Power lost at every moment of a history, on each file system; see the lab. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { PowerLossLab } from '../integration/backup/power-loss-lab.ts';

/** Fewer than there are, spread over all, when it is set. */
const MOMENTS = Number(process.env.VIRTKEEP_POWER_MOMENTS ?? Number.POSITIVE_INFINITY);
const SEED = Number(process.env.VIRTKEEP_POWER_SEED ?? 1);

describe.each(['ext4', 'xfs'] as const)('%s', kind => {
  let lab: PowerLossLab;
  beforeAll(async () => {
    lab = await PowerLossLab.start(kind);
    await lab.history();
  });
  afterAll(() => lab?.stop());

  test(`power lost at any moment, seed ${SEED}`, async () => {
    expect(await lab.loseAt(lab.moments(MOMENTS, SEED))).toEqual([]);
  }, 7_200_000);
});
