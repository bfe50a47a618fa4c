import { afterEach, expect, jest, test } from '@jest/globals';
import { noteServerTime, serverNow } from './server-time.ts';

const NOON = Date.UTC(2026, 2, 1, 12);
const HOUR_MS = 3_600_000;
const at = (ms: number) => jest.spyOn(Date, 'now').mockReturnValue(ms);
const told = (ms: number) => noteServerTime(new Date(ms).toUTCString());
afterEach(() => void jest.restoreAllMocks());

test('a clock that is off is put right by what the controller tells, and one that is right stays as it is', () => {
  at(NOON - 5 * HOUR_MS);
  told(NOON);
  expect(serverNow()).toBe(NOON);
  // answers that are a little late change nothing
  at(NOON - 5 * HOUR_MS + 3000);
  told(NOON);
  expect(serverNow()).toBe(NOON + 3000);
  // somebody has put it right
  at(NOON + 60_000);
  told(NOON + 58_000);
  expect(serverNow()).toBe(NOON + 60_000);
  noteServerTime(null);
  noteServerTime('yesterday');
  expect(serverNow()).toBe(NOON + 60_000);
});
