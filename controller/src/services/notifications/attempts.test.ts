import { expect, test } from '@jest/globals';
import { MAX_ATTEMPTS, nextAttempt } from './attempts.ts';

const NOW = new Date('2026-03-01T00:00:00Z');
const minutesAfter = (failed: number) =>
  ((nextAttempt(failed, NOW)?.getTime() ?? 0) - NOW.getTime()) / 60_000;

test('it waits a minute, then twice as long each time, and never more than an hour', () => {
  expect([1, 2, 3, 4, 5, 6, 7, 8, 40].map(minutesAfter)).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60]);
});

test('it gives up after three days', () => {
  let now = NOW;
  let failed = 1;
  for (let next = nextAttempt(failed, now); next !== undefined; next = nextAttempt(++failed, now)) now = next;
  expect(failed).toBe(MAX_ATTEMPTS);
  const hours = (now.getTime() - NOW.getTime()) / 3_600_000;
  expect(hours).toBeGreaterThanOrEqual(72);
  expect(hours).toBeLessThan(73);
});
