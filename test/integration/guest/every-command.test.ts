/** Every guest command of the specification's list, and each other one that a real Debian guest offers, over REST. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { BEYOND, EFFECTS, LISTED, SECRET } from './effects.ts';
import { GuestRestLab } from './rest-lab.ts';

let lab: GuestRestLab;
let offered: string[];
beforeAll(async () => {
  lab = await GuestRestLab.start('asked');
  offered = await lab.offered();
});
afterAll(() => lab?.stop());

test.each(Object.keys(EFFECTS))('%s', async command => {
  if (offered.includes(command)) return EFFECTS[command]!(lab);
  const [, key] = await lab.refusal(command);
  expect(['guest_command_disabled', 'guest_command_unknown']).toContain(key);
});

test('they are all, and only one of them is not for Linux', () => {
  expect(offered.filter(command => !(command in EFFECTS))).toEqual([]);
  expect(Object.keys(EFFECTS).sort()).toEqual([...LISTED, ...BEYOND].sort());
  expect(LISTED.filter(command => !offered.includes(command))).toEqual(['guest-get-devices']);
});

test('no secret of all this is in a file of the controller or the agent', () => {
  expect(lab.filesWith(SECRET)).toEqual([]);
});
