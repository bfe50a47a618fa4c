import { expect, test } from '@jest/globals';
import { BadTiming, DueTimes, type Recurrence, type Timing } from './due-times.ts';

const written = (due: number) => new Date(due).toISOString().replace('.000Z', 'Z');

/** The first ones from the start on. */
const times = (recurrence: Recurrence, start: string, timeZone: string, count = 4) =>
  timesFrom(start, { recurrence, start: Date.parse(start), timeZone }, count);

const timesFrom = (from: string, timing: Timing, count: number) =>
  new DueTimes(timing).following(Date.parse(from) - 1, count).map(written);

const DAILY: Recurrence = { periodicity: 'daily' };

test('once', () => {
  const once: Recurrence = { periodicity: 'once' };
  expect(times(once, '2026-05-01T10:00:00Z', 'UTC')).toEqual(['2026-05-01T10:00:00Z']);
  const timing = { recurrence: once, start: Date.parse('2026-05-01T10:00:00Z'), timeZone: 'UTC' };
  expect(timesFrom('2026-05-01T10:00:01Z', timing, 4)).toEqual([]);
});

test('nothing before the start, and the start itself where it is due', () => {
  const timing = { recurrence: DAILY, start: Date.parse('2026-05-01T10:00:00Z'), timeZone: 'UTC' };
  expect(timesFrom('2020-01-01T00:00:00Z', timing, 2)).toEqual([
    '2026-05-01T10:00:00Z',
    '2026-05-02T10:00:00Z',
  ]);
  // a Friday
  expect(
    times({ periodicity: 'weekly', weekdays: ['sun', 'mon'] }, '2026-05-01T10:00:00Z', 'UTC', 3),
  ).toEqual(['2026-05-03T10:00:00Z', '2026-05-04T10:00:00Z', '2026-05-10T10:00:00Z']);
});

test('each day at the time of the zone, through both changes of the clocks', () => {
  // 02:30 is left out on the 29th of March, and shown twice on the 25th of October
  expect(times(DAILY, '2026-03-28T01:30:00Z', 'Europe/Berlin', 3)).toEqual([
    '2026-03-28T01:30:00Z',
    '2026-03-29T01:00:00Z',
    '2026-03-30T00:30:00Z',
  ]);
  expect(times(DAILY, '2026-10-24T00:30:00Z', 'Europe/Berlin', 3)).toEqual([
    '2026-10-24T00:30:00Z',
    '2026-10-25T00:30:00Z',
    '2026-10-26T01:30:00Z',
  ]);
});

test('hours are those that pass', () => {
  expect(times({ periodicity: 'hourly', hours: 2 }, '2026-10-24T23:30:00Z', 'Europe/Berlin', 3)).toEqual([
    '2026-10-24T23:30:00Z',
    '2026-10-25T01:30:00Z',
    '2026-10-25T03:30:00Z',
  ]);
});

test.each<[string, Recurrence, string[]]>([
  ['a day', { periodicity: 'monthly', day: 15 }, ['2027-12-15', '2028-01-15', '2028-02-15']],
  ['the last day', { periodicity: 'monthly', day: 'last' }, ['2027-12-31', '2028-01-31', '2028-02-29']],
  ['the 29th', { periodicity: 'monthly', day: 29 }, ['2027-12-29', '2028-01-29', '2028-02-29']],
  ['the 30th, or the last', { periodicity: 'monthly', day: 30 }, ['2027-12-30', '2028-01-30', '2028-02-29']],
  ['the 31st, or the last', { periodicity: 'monthly', day: 31 }, ['2027-12-31', '2028-01-31', '2028-02-29']],
  [
    'the second Friday',
    { periodicity: 'monthly', nth: 2, weekday: 'fri' },
    ['2027-12-10', '2028-01-14', '2028-02-11'],
  ],
  [
    'the last Friday',
    { periodicity: 'monthly', nth: 'last', weekday: 'fri' },
    ['2027-12-31', '2028-01-28', '2028-02-25'],
  ],
])('of a month: %s', (_what, recurrence, days) => {
  expect(times(recurrence, '2027-12-01T03:00:00Z', 'UTC', 3)).toEqual(days.map(day => `${day}T03:00:00Z`));
});

test('a short February takes the days that it lacks, once each', () => {
  for (const day of [29, 30, 31])
    expect(times({ periodicity: 'monthly', day }, '2027-02-01T03:00:00Z', 'UTC', 2)).toEqual([
      '2027-02-28T03:00:00Z',
      `2027-03-${day}T03:00:00Z`,
    ]);
});

test('a cron expression has its own times, in the zone', () => {
  const cron: Recurrence = { periodicity: 'cron', expression: '15 4 * * mon-fri' };
  const timing = { recurrence: cron, start: Date.parse('2026-05-01T00:00:00Z'), timeZone: 'Asia/Kathmandu' };
  expect(timesFrom('2026-05-02T00:00:00Z', timing, 2)).toEqual([
    '2026-05-03T22:30:00Z',
    '2026-05-04T22:30:00Z',
  ]);
});

test('an expression for several hours follows the rule of the clocks too', () => {
  const cron: Recurrence = { periodicity: 'cron', expression: '0,30 * * * *' };
  const timing = { recurrence: cron, start: 0, timeZone: 'Europe/Berlin' };
  expect(timesFrom('2026-10-25T00:00:00Z', timing, 3)).toEqual([
    '2026-10-25T00:00:00Z',
    '2026-10-25T00:30:00Z',
    '2026-10-25T02:00:00Z',
  ]);
  expect(timesFrom('2026-10-25T01:10:00Z', timing, 1)).toEqual(['2026-10-25T02:00:00Z']);
  // midnight is left out in Cairo on the 24th of April
  const sixHourly: Recurrence = { periodicity: 'cron', expression: '15 */6 * * *' };
  expect(
    timesFrom('2026-04-23T16:15:00Z', { ...timing, recurrence: sixHourly, timeZone: 'Africa/Cairo' }, 3),
  ).toEqual(['2026-04-23T16:15:00Z', '2026-04-23T22:00:00Z', '2026-04-24T03:15:00Z']);
});

test.each<[Recurrence, string, RegExp]>([
  [{ periodicity: 'cron', expression: 'bogus' }, 'UTC', /has 1 fields/],
  [{ periodicity: 'cron', expression: '* * * * * *' }, 'UTC', /has 6 fields/],
  [{ periodicity: 'cron', expression: '61 * * * *' }, 'UTC', /is no cron expression/],
  [{ periodicity: 'cron', expression: '0 0 30 2 *' }, 'UTC', /never due/],
  [DAILY, 'Mars/Olympus', /is no time zone/],
])('%j in %s is refused', (recurrence, timeZone, reason) => {
  const make = () => new DueTimes({ recurrence, start: 0, timeZone });
  expect(make).toThrow(BadTiming);
  expect(make).toThrow(reason);
});
