import { expect, test } from '@jest/globals';
import { isWritten, readNumber, shownNumber } from './number.ts';

const MiB = 1024 * 1024;

test('what is written is that number or none, never another one', () => {
  expect(['30', '', ' ', '0', '1.5', '8761', '-1', '1e400', 'x'].map(text => readNumber(text, {}))).toEqual([
    ...[30, Number.NaN, Number.NaN, 0, Number.NaN, 8761, Number.NaN, Number.NaN, Number.NaN],
  ]);
  expect(['0', '1', '20', '21'].map(text => readNumber(text, { min: 1, max: 20 }))).toEqual([
    ...[Number.NaN, 1, 20, Number.NaN],
  ]);
});

test('a field that is emptied stays empty while it is written anew', () => {
  expect(shownNumber('', Number.NaN, { min: 1 })).toBe('');
  expect(shownNumber('30', 30, { min: 1 })).toBe('30');
  expect(shownNumber('30', 7, { min: 1 })).toBe('7');
});

test('of a larger unit parts can be shown and written; a little is not nothing', () => {
  expect(shownNumber('', 300 * 1024, { unit: MiB })).toBe('0.29296875');
  expect(readNumber('0.29296875', { unit: MiB })).toBe(300 * 1024);
  expect(readNumber('0.3', { unit: MiB })).toBe(314_573);
  expect(shownNumber('0.3', 314_573, { unit: MiB })).toBe('0.3');
  expect(readNumber('0.0000001', { unit: MiB })).toBe(1);
});

test('a form with a number that is none is not sent', () => {
  expect(isWritten({ every: 1, keep: { daily: 7 }, entities: ['x'], window_end: null })).toBe(true);
  expect(isWritten({ every: 1, keep: { daily: Number.NaN } })).toBe(false);
});
