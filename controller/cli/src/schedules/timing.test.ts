import { expect, test } from '@jest/globals';
import { timingOf, weekdaysOf } from './timing.ts';

const now = new Date('2026-03-28T12:00:00Z');
const zone = 'Europe/Berlin';

test.each([
  [{ daily: '02:00' }, { periodicity: 'daily', start_date: '2026-03-29T01:00:00.000Z' }],
  [{ daily: '23:30' }, { periodicity: 'daily', start_date: '2026-03-28T22:30:00.000Z' }],
  [
    { weekly: 'sun,wed@02:00' },
    { periodicity: 'weekly', weekdays: ['sun', 'wed'], start_date: '2026-03-29T01:00:00.000Z' },
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
])('%j is none', options => {
  expect(() => timingOf({ ...options, zone }, now)).toThrow();
});

test('weekdays stand alone or in rows', () => {
  expect(weekdaysOf('mon-fri')).toEqual(['mon', 'tue', 'wed', 'thu', 'fri']);
  expect(weekdaysOf('Sunday,tue')).toEqual(['sun', 'tue']);
  expect(() => weekdaysOf('fri-mon')).toThrow();
});
