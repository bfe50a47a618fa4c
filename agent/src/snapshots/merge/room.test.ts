import { expect, test } from '@jest/globals';
import { newBytes } from './room.ts';

const CLUSTER = 65_536;
const extents = (...pairs: [number, number][]) =>
  pairs.map(([start, end]) => ({ start: start * CLUSTER, end: end * CLUSTER }));

test.each([
  ['nothing below', extents([0, 3], [5, 6]), [], 4],
  ['all of it below', extents([1, 3]), extents([0, 8]), 0],
  ['the middle below', extents([0, 10]), extents([2, 4], [6, 7]), 7],
  ['an end below', extents([2, 6], [8, 9]), extents([0, 3], [5, 7]), 3],
  ['neighbours below', extents([2, 4]), extents([0, 2], [4, 9]), 2],
  ['one extent below several', extents([0, 1], [2, 3], [4, 5]), extents([0, 3]), 1],
] as const)('a merge with %s', (_name, upper, lower, clusters) => {
  expect(newBytes(upper, lower)).toBe(clusters * CLUSTER);
});

test('parts of clusters count as whole ones, once', () => {
  const pieces = [
    { start: 512, end: 1024 },
    { start: 4096, end: 8192 },
    { start: CLUSTER - 512, end: CLUSTER + 512 },
  ];
  expect(newBytes(pieces, [])).toBe(2 * CLUSTER);
  expect(newBytes(pieces, [{ start: CLUSTER, end: CLUSTER + 1 }])).toBe(CLUSTER);
});
