/** The guest commands that put a real Debian guest to sleep or end it, over REST. */
import { afterAll, beforeAll, test } from '@jest/globals';
import { ENDING, hasEffect } from './effects.ts';
import { GuestRestLab } from './rest-lab.ts';

let lab: GuestRestLab;
beforeAll(async () => {
  lab = await GuestRestLab.start('ended');
});
afterAll(() => lab?.stop());

test.each(Object.entries(ENDING))('%s', (command, effect) => hasEffect(lab, command, effect));
