import { expect, test } from '@jest/globals';
import { integerOf, isDeeperThan, isExact, parseExact } from './exact-json.ts';

const again = (text: string) => JSON.stringify(parseExact(text));

test('integers of any length are written as they were read', () => {
  for (const text of [
    '1795244000123456789',
    '-9223372036854775807',
    '{"return":1795244000123456789,"list":[18446744073709551615,1]}',
  ])
    expect(again(text)).toBe(text);
});

test('all else is as with JSON.parse', () => {
  const text = '{"a":1,"b":1.5,"c":"1795244000123456789","d":[null,true],"e":1e300,"f":0.12345678901234567}';
  expect(parseExact(text)).toEqual(JSON.parse(text));
  expect(() => parseExact('{"a":1234567890123456789')).toThrow();
});

test('an integer is one, kept or not', () => {
  expect(integerOf(parseExact('9223372036854775807'))).toBe(9_223_372_036_854_775_807n);
  expect(integerOf(-5)).toBe(-5n);
  for (const text of ['1.5', '"1"', 'null', '{"rawJSON":"1"}', '[1]'])
    expect(integerOf(parseExact(text))).toBeUndefined();
  expect([isExact(parseExact('9223372036854775807')), isExact({ rawJSON: '1' })]).toEqual([true, false]);
});

test('what is nested too deeply is found', () => {
  const nested = JSON.parse('['.repeat(5) + ']'.repeat(5));
  expect([isDeeperThan(5, nested), isDeeperThan(4, nested)]).toEqual([false, true]);
  expect(isDeeperThan(0, 'text')).toBe(false);
  expect(isDeeperThan(1, { a: parseExact('9223372036854775807') })).toBe(false);
  expect(isDeeperThan(64, JSON.parse(`${'[{"a":'.repeat(50_000)}1${'}]'.repeat(50_000)}`))).toBe(true);
});
