import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { startJanitor } from './janitor.ts';
import type { CoreServices } from './services/services.ts';

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;
/** Of each time that audit records were deleted: those from before it. */
let cuts: number[];
let stop: () => Promise<void>;

beforeEach(() => {
  jest.useFakeTimers({ now: Date.parse('2026-03-01T12:00:00Z') });
  cuts = [];
  const nothing = { prune: async () => 0 };
  const audit = {
    prune: async (before: Date) => cuts.push(before.getTime()),
    cut: async () => 0,
    flush: async () => {},
  };
  const keep = { tasks_days: 90, events_days: 90, audit_days: 365, notifications_days: 90 };
  const services = { config: { keep }, tasks: nothing, events: nothing, audit, notifications: nothing };
  stop = startJanitor({ ...services, idempotency: nothing, tokens: nothing } as unknown as CoreServices);
});
afterEach(async () => {
  await stop();
  jest.useRealTimers();
});

test('what is old is deleted every hour, not before the first has passed', async () => {
  await jest.advanceTimersByTimeAsync(HOUR_MS - 1);
  expect(cuts).toEqual([]);
  await jest.advanceTimersByTimeAsync(2 * HOUR_MS);
  expect(cuts).toEqual([1, 2].map(hour => Date.parse('2026-03-01T12:00:00Z') - YEAR_MS + hour * HOUR_MS));
});

test('a clock that is a year ahead in the moment of the cleaning deletes nothing', async () => {
  await jest.advanceTimersByTimeAsync(HOUR_MS - 5000);
  const now = Date.now();
  jest.setSystemTime(now + YEAR_MS);
  await jest.advanceTimersByTimeAsync(10_000);
  expect(cuts).toEqual([]);
  jest.setSystemTime(now + 10_000);
  await jest.advanceTimersByTimeAsync(HOUR_MS);
  expect(cuts).toEqual([Date.parse('2026-03-01T14:00:00Z') - YEAR_MS]);
});

test('one that was put forward and stays so is believed an hour later', async () => {
  jest.setSystemTime(Date.now() + YEAR_MS);
  await jest.advanceTimersByTimeAsync(HOUR_MS);
  expect(cuts).toEqual([]);
  await jest.advanceTimersByTimeAsync(HOUR_MS);
  expect(cuts).toEqual([Date.parse('2026-03-01T14:00:00Z')]);
});
