// Increments of a running guest in a plain archive: each state is as the guest was, and the VM keeps the states that it has to.
import { afterAll, beforeAll, describe, test } from '@jest/globals';
import { WorkflowLab } from '../backup/lab.ts';
import { fiveIncrements } from './texts-lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

describe('a running guest with an agent', () => {
  test('tar: five increments, held and not held, each state as the guest was', () =>
    fiveIncrements(lab, false));
});
