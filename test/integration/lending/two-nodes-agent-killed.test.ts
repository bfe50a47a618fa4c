/** An agent is killed while a disk of a VM on its node is attached to a VM on another one, or detached from it, or the other way round. */
import { afterAll, beforeAll, test } from '@jest/globals';
import { isNeverHalf } from './two-nodes-killed.ts';
import { TwoNodesLab } from './two-nodes-lab.ts';

let lab: TwoNodesLab;
beforeAll(async () => {
  lab = await TwoNodesLab.start();
});
afterAll(() => lab?.stop());

const VICTIMS = ['the agent of its VM', 'the agent of the other VM'] as const;

test.each(VICTIMS)('is attached or not, never half, when %s is killed at any moment', victim =>
  isNeverHalf(lab, lab.world.agents[VICTIMS.indexOf(victim)]!.daemon),
);
