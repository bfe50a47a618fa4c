/** The controller is killed while a disk of a VM on one node is attached to a VM on another one, or detached from it. */
import { afterAll, beforeAll, test } from '@jest/globals';
import { isNeverHalf } from './two-nodes-killed.ts';
import { TwoNodesLab } from './two-nodes-lab.ts';

let lab: TwoNodesLab;
beforeAll(async () => {
  lab = await TwoNodesLab.start();
});
afterAll(() => lab?.stop());

test('is attached or not, never half, when the controller is killed at any moment', () =>
  isNeverHalf(lab, lab.world.controller.daemon));
