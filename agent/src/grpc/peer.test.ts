import { expect, test } from '@jest/globals';
import { roleOf } from './peer.ts';

test.each([
  ['URI:urn:virtkeep:role:controller, DNS:controller.example', 'controller'],
  ['DNS:x, URI:urn:virtkeep:role:reader, URI:urn:virtkeep:role:operator', 'operator'],
  ['URI:urn:virtkeep:node:6f8a9f0e-0000-4000-8000-000000000000, DNS:node', undefined],
  ['URI:urn:virtkeep:role:root', undefined],
  ['URI:"urn:x:y, URI:urn:virtkeep:role:controller"', undefined],
  ['DNS:urn:virtkeep:role:controller', undefined],
  ['', undefined],
])('%s → %s', (names, role) => {
  expect(roleOf(names)).toBe(role);
});
