import { expect, test } from '@jest/globals';
import { parseRange } from './range.ts';

test.each([
  ['bytes=0-', { first: 0, last: 9 }],
  ['bytes=3-5', { first: 3, last: 5 }],
  ['bytes=3-99', { first: 3, last: 9 }],
  ['bytes=-4', { first: 6, last: 9 }],
  ['bytes=-99', { first: 0, last: 9 }],
  ['bytes=10-', null],
  ['bytes=-0', null],
  ['bytes=5-3', undefined],
  ['bytes=0-1,4-5', undefined],
  ['bytes=-', undefined],
  ['lines=1-2', undefined],
  [undefined, undefined],
])('%s of ten bytes', (header, range) => {
  expect(parseRange(header, 10)).toEqual(range);
});

test('nothing can be taken of nothing', () => {
  expect(parseRange('bytes=0-', 0)).toBeNull();
});
