import { describe, expect, test } from '@jest/globals';
import { bytesOf, unitBytes, wholeOf } from './units.ts';

describe('units', () => {
  test.each([
    ['byte', 1],
    ['byte * 2^30', 2 ** 30],
    ['byte*2^20', 2 ** 20],
    ['byte * 2 ^ 20', 2 ** 20],
    ['byte * 1024', 1024],
    ['byte * 2^10 * 1024', 2 ** 20],
    ['byte * 10^9', 1e9],
    ['bytes', 1],
    ['MegaBytes', 2 ** 20],
    ['megabytes', 2 ** 20],
    ['GB', 2 ** 30],
    [' KB ', 1024],
    ['TB', 2 ** 40],
  ])('%s', (unit, bytes) => expect(unitBytes(unit)).toBe(bytes));

  test.each([
    '',
    'hertz * 10^6',
    'byte *',
    'byte * x',
    'byte * 2^99',
    'byte * -1',
    'byte * 0',
    '__proto__',
    'constructor',
  ])('%s is none', unit => expect(unitBytes(unit)).toBeUndefined());

  test('an endless one is none, at once', () =>
    expect(unitBytes(`byte${' * 2'.repeat(1e5)}`)).toBeUndefined());

  test.each([
    ['8', 'byte * 2^30', 8 * 2 ** 30],
    ['0', 'GB', 0],
    ['9007199254740993', 'byte', undefined],
    ['9999999', 'TB', undefined],
    ['-1', 'byte', undefined],
    ['1.5', 'GB', undefined],
    ['', 'byte', undefined],
    ['1e3', 'byte', undefined],
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a property of OVF
    ['${size}', 'byte', undefined],
  ])('%s of %s', (quantity, unit, bytes) => expect(bytesOf(quantity, unit)).toBe(bytes));

  test('whole numbers', () => {
    expect([wholeOf(' 7 '), wholeOf('٣'), wholeOf('0x7'), wholeOf(undefined)]).toEqual([
      7,
      undefined,
      undefined,
      undefined,
    ]);
  });
});
