import { expect, test } from '@jest/globals';
import { ZoneTime } from './zone-time.ts';

const berlin = new ZoneTime('Europe/Berlin');
const at = (text: string) => {
  const [year, month, day, hour, minute] = text.split(/[-T:]/).map(Number) as [
    number,
    number,
    number,
    number,
    number,
  ];
  return new Date(berlin.instantOf({ year, month, day, hour, minute, second: 0 })).toISOString();
};

test.each([
  ['2026-01-15T02:00', '2026-01-15T01:00:00.000Z'],
  ['2026-07-15T02:00', '2026-07-15T00:00:00.000Z'],
  ['2026-03-29T01:59', '2026-03-29T00:59:00.000Z'],
  ['2026-03-29T03:00', '2026-03-29T01:00:00.000Z'],
  ['2026-10-25T01:59', '2026-10-24T23:59:00.000Z'],
  ['2026-10-25T03:00', '2026-10-25T02:00:00.000Z'],
])('clocks on the wall show %s at %s', (shown, instant) => {
  expect(at(shown)).toBe(instant);
});

test('a time that is shown twice is the first, and one that is left out comes after the change', () => {
  expect(at('2026-10-25T02:30')).toBe('2026-10-25T00:30:00.000Z');
  expect(at('2026-03-29T02:30')).toBe('2026-03-29T01:30:00.000Z');
});

test('what it shows is what it was asked for, in any zone', () => {
  for (const zone of ['UTC', 'America/New_York', 'Asia/Kolkata', 'Pacific/Apia', 'Australia/Lord_Howe']) {
    const time = new ZoneTime(zone);
    for (let instant = Date.UTC(2026, 0, 1); instant < Date.UTC(2027, 0, 1); instant += 86_400_000 * 3.7) {
      const whole = Math.floor(instant / 60_000) * 60_000;
      const wall = time.wallTime(whole);
      expect(time.wallTime(time.instantOf(wall))).toEqual(wall);
    }
  }
});

test('a time is first shown once, and one that is left out is passed when the clocks are put forward', () => {
  const first = (zone: string, shown: string) =>
    new Date(new ZoneTime(zone).firstInstantOf(Date.parse(`${shown}:00Z`))).toISOString().slice(0, 16);
  expect(first('Europe/Berlin', '2026-10-25T02:30')).toBe('2026-10-25T00:30');
  expect(first('Europe/Berlin', '2026-03-29T02:30')).toBe('2026-03-29T01:00');
  expect(first('Africa/Cairo', '2026-04-24T00:15')).toBe('2026-04-23T22:00');
  expect(first('Antarctica/Troll', '2026-03-29T02:59')).toBe('2026-03-29T01:00');
  // the 30th of December was left out
  expect(first('Pacific/Apia', '2011-12-30T12:00')).toBe('2011-12-30T10:00');
});
