import { beforeEach, expect, test } from '@jest/globals';
import { ExpiringMap } from './expiring-map.ts';

let now: number;
beforeEach(() => {
  now = 0;
});
const options = { lifeMs: 10, maxEntries: 3, nowMs: () => now };
const found = (map: ExpiringMap<string>, keys: string) => [...keys].map(key => map.get(key) ?? '-').join('');

test('an entry is there until its life is over, however often it is asked for', () => {
  const map = new ExpiringMap<string>(options);
  map.set('a', '1');
  now = 9;
  map.set('b', '2');
  expect(found(map, 'abc')).toBe('12-');
  now = 10;
  expect(found(map, 'abc')).toBe('-2-');
  now = 18;
  expect(found(map, 'b')).toBe('2');
  now = 19;
  expect(found(map, 'b')).toBe('-');
});

test('set again it begins anew, and is no longer the oldest', () => {
  const map = new ExpiringMap<string>(options);
  for (const key of 'abc') map.set(key, key);
  now = 5;
  map.set('a', 'A');
  now = 12;
  expect(found(map, 'abc')).toBe('A--');
  for (const key of 'xyz') map.set(key, key);
  expect(found(map, 'axyz')).toBe('-xyz');
});

test('the oldest go when there are too many, or they weigh too much', () => {
  const many = new ExpiringMap<string>(options);
  for (const key of 'abcd') many.set(key, key);
  expect(found(many, 'abcd')).toBe('-bcd');

  const heavy = new ExpiringMap<string>({ ...options, weight: { of: text => text.length, max: 4 } });
  heavy.set('a', 'aa');
  heavy.set('b', 'bb');
  expect(found(heavy, 'ab')).toBe('aabb');
  heavy.set('c', 'c');
  expect(found(heavy, 'abc')).toBe('-bbc');
  heavy.set('b', '');
  heavy.set('d', 'ddd');
  expect([found(heavy, 'cd'), heavy.get('b')]).toEqual(['cddd', '']);
  heavy.set('e', 'eeeee');
  expect(found(heavy, 'acde')).toBe('----');
});

test('what is deleted is gone, and weighs nothing', () => {
  const map = new ExpiringMap<string>({ ...options, weight: { of: text => text.length, max: 2 } });
  map.set('a', 'aa');
  map.delete('a');
  map.delete('a');
  map.set('b', 'bb');
  expect(found(map, 'ab')).toBe('-bb');
});
