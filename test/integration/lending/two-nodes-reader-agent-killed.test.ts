/** The agent of the VM that gets the disk is killed while it is attached to the VM on another node, or detached from it. */
import { afterAll, beforeAll, describe, test } from '@jest/globals';
import { ATTACH_DISK_STEPS } from '../../../agent/src/workflows/lend/attach.ts';
import { DETACH_DISK_STEPS } from '../../../agent/src/workflows/lend/detach.ts';
import { isNeverHalf, MortalAgent } from './two-nodes-killed.ts';
import { TwoNodesLab } from './two-nodes-lab.ts';

let lab: TwoNodesLab;
beforeAll(async () => {
  lab = await TwoNodesLab.start();
});
afterAll(() => lab?.stop());

test('is attached or not, never half, whenever that agent is killed', () =>
  isNeverHalf(lab, lab.world.agents[1]!.daemon));

describe('killed at the end of each step', () => {
  let agent: MortalAgent;
  beforeAll(async () => {
    agent = await MortalAgent.of(lab, lab.world.agents[1]!);
  });

  test.each(ATTACH_DISK_STEPS.map(step => `attach_disk.${step}`))('%s', point => agent.attachesUntil(point));
  test.each(DETACH_DISK_STEPS.map(step => `detach_disk.${step}`))('%s', point => agent.detachesUntil(point));
});
