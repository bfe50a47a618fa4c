import { expect, test } from '@jest/globals';
import { isSupported } from './node-version.ts';

test.each([
  ['20.20.2', false],
  ['22.17.9', false],
  ['22.18.0', true],
  ['24.0.0', true],
])('Node %s: %s', (version, supported) => {
  expect(isSupported(version)).toBe(supported);
});
