/** The agent of the VM whose disk it is is killed while it is attached to the VM on another node, or detached from it. */
import { afterAll, beforeAll, describe, test } from '@jest/globals';
import { LEND_DISK_STEPS, RETURN_DISK_STEPS } from '../../../agent/src/workflows/lend/lend.ts';
import { isNeverHalf, MortalAgent } from './two-nodes-killed.ts';
import { TwoNodesLab } from './two-nodes-lab.ts';

let lab: TwoNodesLab;
beforeAll(async () => {
  lab = await TwoNodesLab.start();
});
afterAll(() => lab?.stop());

test('is attached or not, never half, whenever that agent is killed', () =>
  isNeverHalf(lab, lab.world.agents[0]!.daemon));

describe('killed at the end of each step', () => {
  let agent: MortalAgent;
  beforeAll(async () => {
    agent = await MortalAgent.of(lab, lab.world.agents[0]!);
  });

  test.each(LEND_DISK_STEPS.map(step => `lend_disk.${step}`))('%s', point => agent.attachesUntil(point));
  test.each(RETURN_DISK_STEPS.map(step => `return_disk.${step}`))('%s', point => agent.detachesUntil(point));
});
