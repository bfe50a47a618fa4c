/** Each guest command of the specification's list, and each other one that a real Debian guest offers, over REST; all but those that end it. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { ASKED, BEYOND, ENDING, hasEffect, LISTED, SECRET } from './effects.ts';
import { GuestRestLab } from './rest-lab.ts';

let lab: GuestRestLab;
beforeAll(async () => {
  lab = await GuestRestLab.start('asked');
});
afterAll(() => lab?.stop());

test('there is a case for each of them, and only one of them is not for Linux', () => {
  const { offered } = lab;
  const cases = Object.keys({ ...ASKED, ...ENDING });
  expect(offered.filter(command => !cases.includes(command))).toEqual([]);
  expect(cases.sort()).toEqual([...LISTED, ...BEYOND].sort());
  expect(LISTED.filter(command => !offered.includes(command))).toEqual(['guest-get-devices']);
});

test.each(Object.entries(ASKED))('%s', (command, effect) => hasEffect(lab, command, effect));

test('no secret of all this is in a file of the controller or the agent', () => {
  expect(lab.filesWith(SECRET)).toEqual([]);
});
