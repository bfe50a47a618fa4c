import { expect, test } from '@jest/globals';
import { forecastOf, growthOf, growthOfBackups, type PoolSample, UNKNOWN } from './forecast.ts';

const DAY_MS = 86_400_000;
const dayAt = (index: number) => new Date(Date.UTC(2026, 0, 1) + index * DAY_MS).toISOString().slice(0, 10);

/** Of so many days, by what is used on each; undefined: nobody looked. */
function samples(days: number, usedOn: (day: number) => number | undefined): PoolSample[] {
  return Array.from({ length: days }, (_, day) => ({ day: dayAt(day), used: usedOn(day) })).flatMap(
    ({ day, used }) => (used === undefined ? [] : [{ day, used }]),
  );
}
const perDay = (all: readonly PoolSample[]) => growthOf(all)?.perDay;

test('what grows evenly is full when its growth has taken what is free', () => {
  const growth = growthOf(samples(30, day => 1000 + 10 * day));
  expect(growth).toEqual({ perDay: 10, basis: 'samples' });
  expect(forecastOf(growth, 125)).toEqual({
    state: 'filling',
    days: 12,
    growth_per_day: 10,
    basis: 'samples',
  });
  expect(forecastOf(growth, 0)).toMatchObject({ state: 'filling', days: 0 });
});

test('before two weeks nothing is told, whatever was seen', () => {
  expect(growthOf(samples(13, day => 10 * day))).toBeUndefined();
  expect(growthOf(samples(14, day => 10 * day))?.perDay).toBe(10);
  expect(growthOf([])).toBeUndefined();
  expect(forecastOf(undefined, 100)).toEqual(UNKNOWN);
});

test('days on which nobody looked are no days without growth', () => {
  expect(perDay(samples(60, day => (day % 3 === 0 || day > 45 ? 10 * day : undefined)))).toBe(10);
  // away for a month: that month tells of no week
  const away = samples(60, day => (day > 14 && day < 45 ? undefined : 10 * day + (day < 45 ? 0 : 5000)));
  expect(perDay(away)).toBe(10);
});

test('one removal in the middle does not hide the growth before and after it', () => {
  for (const at of [10, 15, 20, 25])
    expect(perDay(samples(30, day => 10 * day - (day < at ? 0 : 200)))).toBe(10);
});

test('what each week takes away as it brings is steady, on whatever day one looks', () => {
  // six increments, then a full backup and the removal of the oldest week
  const used = (day: number) => 1000 + 10 * (day % 7) + (day % 7 === 6 ? 40 : 0);
  for (let days = 21; days < 35; days += 1) expect(perDay(samples(days, used))).toBe(0);
  expect(forecastOf(growthOf(samples(30, used)), 100)).toMatchObject({ state: 'steady', days: null });
});

test('what shrinks, or fills up in years only, is steady', () => {
  const shrinking = growthOf(samples(30, day => 5000 - 10 * day));
  expect(forecastOf(shrinking, 10)).toEqual({
    state: 'steady',
    days: null,
    growth_per_day: -10,
    basis: 'samples',
  });
  expect(forecastOf(growthOf(samples(30, day => day)), 1000)).toMatchObject({
    state: 'steady',
    growth_per_day: 1,
  });
});

test('a pool that was made larger lasts for what is free now', () => {
  // its growth is of what is used, which its size does not change
  const growth = growthOf(samples(30, day => 10 * day));
  expect([forecastOf(growth, 100).days, forecastOf(growth, 1100).days]).toEqual([10, 110]);
});

test('of a pool that is new here the backups tell, once there is a week of them', () => {
  const now = new Date(Date.UTC(2026, 0, 21));
  const daysAgo = (days: number) => new Date(now.getTime() - days * DAY_MS);
  expect(growthOfBackups(daysAgo(20), 1000, now)).toEqual({ perDay: 50, basis: 'backups' });
  expect(growthOfBackups(daysAgo(6), 1000, now)).toBeUndefined();
});
