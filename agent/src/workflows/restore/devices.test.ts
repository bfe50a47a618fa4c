import { expect, test } from '@jest/globals';
import { type DeviceFacts, judgeDevice } from './devices.ts';

const free: DeviceFacts = { isPresent: true };
const unheard: DeviceFacts = { isPresent: true, unheard: 'node n2 was not heard' };
const used: DeviceFacts = { isPresent: true, usedBy: 'vm on the node n2' };

test.each<[string, DeviceFacts, boolean, boolean, object]>([
  ['in place, free', free, false, true, { attach: true }],
  ['in place, used', used, false, true, { attach: false, refuse: false }],
  ['in place, not all nodes heard', unheard, false, true, { attach: false, refuse: false }],
  ['in place, not there', { isPresent: false }, false, true, { attach: false, refuse: false }],
  ['beside the original', free, false, false, { attach: false, refuse: false }],
  ['beside the original, asked for', free, true, false, { attach: true }],
  ['asked for, used', used, true, false, { attach: false, refuse: true }],
  ['asked for, not there', { isPresent: false }, true, true, { attach: false, refuse: true }],
  [
    'asked for, not all nodes heard',
    unheard,
    true,
    true,
    { attach: true, warning: expect.stringContaining('n2') },
  ],
])('a LUN %s', (...row) => {
  const [, facts, asked, keepIdentity, verdict] = row;
  expect(judgeDevice(facts, asked, keepIdentity)).toMatchObject(verdict);
});
