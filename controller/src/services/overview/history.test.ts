import { expect, test } from '@jest/globals';
import { lastDays, notAfterBegin, resultsByDay } from './history.ts';

const now = new Date('2026-03-01T23:30:00Z');

test('days are those of the time zone, also over the end of a month', () => {
  expect(lastDays(now, 'UTC', 3)).toEqual(['2026-02-27', '2026-02-28', '2026-03-01']);
  expect(lastDays(now, 'Asia/Vladivostok', 2)).toEqual(['2026-03-01', '2026-03-02']);
  expect(lastDays(now, 'Pacific/Honolulu', 1)).toEqual(['2026-03-01']);
});

test('what is asked of the database begins no later than the first day, wherever', () => {
  for (const timeZone of ['Pacific/Kiritimati', 'UTC', 'Pacific/Pago_Pago'])
    expect(Date.parse(notAfterBegin(lastDays(now, timeZone, 14)[0]!))).toBeLessThanOrEqual(
      now.getTime() - 13 * 86_400_000,
    );
});

test('a day with good and failed backups is mixed; what ended on no day asked for counts nowhere', () => {
  const days = lastDays(now, 'Europe/Berlin', 3);
  const ended = (domain: string, time: string, isGood: boolean) => ({ domain, ended: time, isGood });
  const results = resultsByDay(
    [
      // half an hour after midnight there
      ended('a', '2026-03-01T23:30:00Z', true),
      ended('a', '2026-03-01T10:00:00Z', false),
      ended('a', '2026-02-28T10:00:00Z', false),
      ended('a', '2026-02-28T11:00:00Z', true),
      ended('a', '2026-02-28T12:00:00Z', true),
      ended('b', '2026-02-01T10:00:00Z', true),
    ],
    days,
    'Europe/Berlin',
  );
  expect(days).toEqual(['2026-02-28', '2026-03-01', '2026-03-02']);
  expect(results.get('a')).toEqual(['mixed', 'failed', 'good']);
  expect(results.has('b')).toBe(false);
});
