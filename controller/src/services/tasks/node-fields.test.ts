import { expect, test } from '@jest/globals';
import { nodeFields } from './node-fields.ts';

test('what was given goes to the node under its name there, and nothing else does', () => {
  const options = { exclude_iso: true, compress: false, exclude_vdisks: ['a'], hold_states: undefined };
  expect(nodeFields(options)).toEqual({ excludeIso: true, compress: false, excludeVdisks: ['a'] });
  expect(Object.keys(nodeFields(options))).not.toContain('holdStates');
});
