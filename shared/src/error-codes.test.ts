import { expect, test } from '@jest/globals';
import { ERRORS } from './errors.ts';

test('each error has a code of its own', () => {
  const codes = Object.values(ERRORS).map(({ code }) => code);
  expect(codes.filter((code, at) => codes.indexOf(code) !== at)).toEqual([]);
});
