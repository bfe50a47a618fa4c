import { expect, test } from '@jest/globals';
import { KeyedCount } from './keyed-count.ts';

test('each key has its own count, and what is taken back twice counts once', () => {
  const counts = new KeyedCount();
  const [first, second] = [counts.add('a'), counts.add('a')];
  counts.add('b');
  expect([counts.of('a'), counts.of('b'), counts.of('c'), counts.total]).toEqual([2, 1, 0, 3]);
  first();
  first();
  expect([counts.of('a'), counts.total]).toEqual([1, 2]);
  second();
  expect([counts.of('a'), counts.total]).toEqual([0, 1]);
});
