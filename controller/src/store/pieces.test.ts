import { expect, test } from '@jest/globals';
import { piecesOf } from './pieces.ts';

test.each([0, 1, 500, 501, 33_000])('%d rows come whole and in order, few at a time', count => {
  const rows = Array.from({ length: count }, (_, index) => index);
  const pieces = [...piecesOf(rows)];
  expect(pieces.flat()).toEqual(rows);
  expect(pieces.every(({ length }) => length > 0 && length <= 500)).toBe(true);
});
