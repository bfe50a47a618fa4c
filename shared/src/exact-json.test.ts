import { expect, test } from '@jest/globals';
import { parseExact } from './exact-json.ts';

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
