import { expect, test } from '@jest/globals';
import { dateOf, dayOf, daysOf, moved } from './days.ts';

const MARCH = new Date(2026, 2, 18);

test('a month is shown in whole weeks, and a week from Monday on', () => {
  const month = daysOf('month', MARCH);
  expect([month.length, month[0]!.date, month.at(-1)!.date]).toEqual([42, '2026-02-23', '2026-04-05']);
  expect(month.filter(({ isMeant }) => isMeant)).toHaveLength(31);
  expect(daysOf('month', new Date(2027, 1, 5)).map(({ date }) => date)).toHaveLength(28);
  expect(daysOf('week', MARCH).map(({ date }) => date)).toEqual([
    ...['2026-03-16', '2026-03-17', '2026-03-18', '2026-03-19', '2026-03-20', '2026-03-21', '2026-03-22'],
  ]);
  for (const [index, day] of month.entries())
    if (index > 0) expect(month[index - 1]!.ends).toEqual(day.begins);
});

test('one goes on by weeks and by months, from the last day of one too', () => {
  expect(dateOf(moved('week', MARCH, 1))).toBe('2026-03-25');
  expect(dateOf(moved('month', new Date(2026, 0, 31), 1))).toBe('2026-02-01');
  expect(dateOf(moved('month', MARCH, -3))).toBe('2025-12-01');
});

test('what is no date is today', () => {
  expect(dateOf(dayOf('2026-02-30', MARCH))).toBe('2026-03-18');
  expect(dateOf(dayOf('', MARCH))).toBe('2026-03-18');
  expect(dateOf(dayOf('2026-02-28', MARCH))).toBe('2026-02-28');
});
