// See trimmed.ts.
import { afterAll, beforeAll, test } from '@jest/globals';
import { WorkflowLab } from '../backup/lab.ts';
import { trimmedAndGrown } from './trimmed.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

test('a plain archive of a guest that goes on: three restore points become two, and grow', () =>
  trimmedAndGrown(lab, false));
