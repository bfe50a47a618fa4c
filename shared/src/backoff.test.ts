import { expect, test } from '@jest/globals';
import { Backoff } from './backoff.ts';

test('doubles up to its bound and begins again after a reset', () => {
  const backoff = new Backoff(100, 800, () => 0.5);
  expect([1, 2, 3, 4, 5].map(() => backoff.next())).toEqual([100, 200, 400, 800, 800]);
  backoff.reset();
  expect(backoff.next()).toBe(100);
});

test('goes up steadily where nobody else waits', () => {
  const backoff = Backoff.steady(100, 300);
  expect([1, 2, 3].map(() => backoff.next())).toEqual([100, 200, 300]);
});

test('spreads by a quarter to both sides', () => {
  expect(new Backoff(100, 800, () => 0).next()).toBe(75);
  expect(new Backoff(100, 800, () => 1).next()).toBe(125);
});
