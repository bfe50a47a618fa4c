// kill -9 and other blows at each step of an increment of a compressed archive: it and the VM are afterwards as before, and
// the next one works.
import { afterAll, beforeAll, describe } from '@jest/globals';
import { asksEachMoment, IncrementsAlone } from './faults-increment-lab.ts';

let lab: IncrementsAlone;
beforeAll(async () => {
  lab = await IncrementsAlone.start();
});
afterAll(() => lab?.alone.stop());

describe('tar.zst', () => asksEachMoment(() => lab, true));
