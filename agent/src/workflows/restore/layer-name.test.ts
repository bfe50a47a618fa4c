import { expect, test } from '@jest/globals';
import { isRestoredLayer, layerName } from './layer-name.ts';

const ID = '11111111-2222-4333-8444-555555555555';

test.each([
  [`/pool/${layerName(ID, 1)}`, true],
  [`/pool/${layerName(ID, 12)}`, true],
  [`/pool/${layerName(ID, 0)}`, false],
  [`/pool/${ID}.qcow2`, false],
  ['/pool/vm.1.qcow2', false],
])('%s stands on a file of the same restore: %s', (path, does) => {
  expect(isRestoredLayer(path)).toBe(does);
});
