import { expect, test } from '@jest/globals';
import { limitsOf } from './limits.ts';

const plenty = { freeBytes: 1e15, processors: 8, compress: false };

test.each([
  // as many as there are disks, processors, or four
  [[1, 1], plenty, { atOnce: 2, spares: 2 }],
  [[1, 1, 1, 1, 1, 1], plenty, { atOnce: 4, spares: 4 }],
  [[1, 1, 1], { ...plenty, processors: 2 }, { atOnce: 2, spares: 2 }],
  // one disk, or one processor: where it stays, without a spare file
  [[1], plenty, { atOnce: 1, spares: 0 }],
  [[], plenty, { atOnce: 1, spares: 0 }],
  [[1, 1], { ...plenty, processors: 1 }, { atOnce: 1, spares: 0 }],
  // compressed: one is compressed while the next is read, also by one processor
  [[1], { ...plenty, compress: true }, { atOnce: 1, spares: 1 }],
  [[1, 1], { ...plenty, processors: 1, compress: true }, { atOnce: 1, spares: 2 }],
  [[1, 1, 1], { ...plenty, compress: true }, { atOnce: 3, spares: 4 }],
])('%j with %j', (sizes, room, limits) => {
  expect(limitsOf(sizes, room)).toEqual(limits);
});

test('what there is no room for is done one after another', () => {
  const sizes = [100, 400, 300];
  const of = (freeBytes: number, compress = false) => limitsOf(sizes, { ...plenty, freeBytes, compress });
  // the archive, and its largest disks in spare files
  expect(of(1600).atOnce).toBe(3);
  expect(of(1599)).toEqual({ atOnce: 2, spares: 2 });
  expect(of(1500)).toEqual({ atOnce: 2, spares: 2 });
  expect(of(1499)).toEqual({ atOnce: 1, spares: 0 });
  expect(of(1200, true)).toEqual({ atOnce: 3, spares: 4 });
  expect(of(1199, true)).toEqual({ atOnce: 1, spares: 2 });
  expect(of(1099, true)).toEqual({ atOnce: 1, spares: 1 });
});
