import { describe, expect, test } from '@jest/globals';
import { timingOf, weekdaysOf } from './timing.ts';

const now = new Date('2026-03-28T12:00:00Z');
const zone = 'Europe/Berlin';

test.each([
  // tomorrow the clocks leave it out, and the runs have their time of day from their start
  [{ daily: '02:00' }, { periodicity: 'daily', start_date: '2026-03-28T01:00:00.000Z' }],
  [{ daily: '23:30' }, { periodicity: 'daily', start_date: '2026-03-28T22:30:00.000Z' }],
  [
    { weekly: 'sun,wed@02:00' },
    { periodicity: 'weekly', weekdays: ['sun', 'wed'], start_date: '2026-03-28T01:00:00.000Z' },
  ],
  [
    { monthly: 'first-sun@04:00' },
    {
      periodicity: 'monthly',
      month_day: 0,
      week: 'first',
      weekdays: ['sun'],
      start_date: '2026-03-29T02:00:00.000Z',
    },
  ],
  [
    { monthly: 'last@04:00' },
    { periodicity: 'monthly', month_day: 31, weekdays: [], start_date: '2026-03-29T02:00:00.000Z' },
  ],
  [{ hourly: '6' }, { periodicity: 'hourly', every: 6 }],
  [{ cron: '0 3 * * 1-5' }, { periodicity: 'cron', cron: '0 3 * * 1-5' }],
  [{ once: '2026-04-01T02:00:00Z' }, { periodicity: 'once', start_date: '2026-04-01T02:00:00.000Z' }],
])('%j', (options, settings) => {
  expect(timingOf({ ...options, zone }, now)).toEqual({ time_zone: zone, ...settings });
});

const berlin = (time: string) => new Date(`${time}+02:00`).toISOString();

test.each([
  [{ daily: '02:00', start: '2026-05-10' }, '2026-05-10T02:00'],
  [{ daily: '02:00', start: '2026-05-10T02:00' }, '2026-05-10T02:00'],
  [{ daily: '02:00', start: '2026-05-10T03:00' }, '2026-05-11T02:00'],
  [{ weekly: 'sun@23:00', start: '2026-05-09T22:30:00Z' }, '2026-05-10T23:00'],
  [{ hourly: '6', start: '2026-05-10 00:15' }, '2026-05-10T00:15'],
  [{ cron: '0 3 * * *', start: '2026-05-10' }, '2026-05-10T00:00'],
  [{ once: '2026-05-10T02:00' }, '2026-05-10T02:00'],
  [{ once: '2026-05-10T02:00+04:00' }, '2026-05-10T00:00'],
  [{ once: '2026-05-10T02:00+04' }, '2026-05-10T00:00'],
  [{ once: '2026-05-10 02:00 +04:00' }, '2026-05-10T00:00'],
  [{ once: '2026-05-10T02:00:00.000' }, '2026-05-10T02:00'],
  [{ once: 'Sun, 10 May 2026 02:00:00 +0400' }, '2026-05-10T00:00'],
])('%j begins in the zone, and at its time of day', (options, start) => {
  expect(timingOf({ ...options, zone }, now).start_date).toBe(berlin(start));
});

describe('of a task that is changed', () => {
  const before = { periodicity: 'daily', start_date: berlin('2026-04-01T02:30'), time_zone: zone };

  test.each([
    ['2026-05-10', '2026-05-10T02:30'],
    ['2026-05-10T12:00', '2026-05-11T02:30'],
  ])('a later start, %s, leaves its time of day', (start, first) => {
    expect(timingOf({ start }, now, before)).toEqual({ start_date: berlin(first) });
  });

  test('a day on which its time is left out is not its first', () => {
    const summer = { ...before, start_date: '2026-01-01T01:30:00.000Z' };
    expect(timingOf({ start: '2026-03-29' }, now, summer)).toEqual({
      start_date: berlin('2026-03-30T02:30'),
    });
  });

  test('a start that is the time of its run replaces it', () => {
    const start = '2026-05-10T12:00';
    expect(timingOf({ start }, now, { ...before, periodicity: 'once' })).toEqual({
      start_date: berlin(start),
    });
  });

  test('its zone holds, unless another one is given', () => {
    expect(timingOf({ daily: '04:00' }, now, before)).toEqual({
      periodicity: 'daily',
      time_zone: zone,
      start_date: berlin('2026-03-29T04:00'),
    });
    expect(timingOf({ daily: '04:00', zone: 'UTC' }, now, before).time_zone).toBe('UTC');
  });

  test('a cron expression goes when it is due otherwise', () => {
    expect(timingOf({ hourly: '6' }, now, { ...before, periodicity: 'cron' })).toMatchObject({ cron: '' });
  });
});

test('without an option nothing is said of when', () => {
  expect(timingOf({}, now)).toEqual({});
});

test.each([
  [{ daily: '25:00' }],
  [{ daily: '2' }],
  [{ weekly: 'someday@02:00' }],
  [{ weekly: 'sun' }],
  [{ monthly: '32@02:00' }],
  [{ daily: '02:00', cron: '* * * * *' }],
  [{ start: 'soon' }],
  [{ start: '1 March 2026' }],
  [{ start: '2026-13-01' }],
])('%j is none', options => {
  expect(() => timingOf({ ...options, zone }, now)).toThrow();
});

test('weekdays stand alone or in rows', () => {
  expect(weekdaysOf('mon-fri')).toEqual(['mon', 'tue', 'wed', 'thu', 'fri']);
  expect(weekdaysOf('Sunday,tue')).toEqual(['sun', 'tue']);
  expect(() => weekdaysOf('fri-mon')).toThrow();
});
