// See histories.ts.
import { afterAll, beforeAll, test } from '@jest/globals';
import { walkHistory } from './histories.ts';
import { SnapshotLab } from './lab.ts';

let lab: SnapshotLab;
beforeAll(async () => {
  lab = await SnapshotLab.start();
});
afterAll(() => lab?.stop());

test('states and disks after each step of a random history', () => walkHistory(lab, 2));
