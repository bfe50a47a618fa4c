// An archive that grew by increments, not held on the VM: each state comes back with all states below, also the merged ones.
import { afterAll, beforeAll, test } from '@jest/globals';
import { WorkflowLab } from '../backup/lab.ts';
import { everyStateComesBack } from './increments-lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

test('tar', () => everyStateComesBack(lab, false));
