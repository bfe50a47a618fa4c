import { expect, test } from '@jest/globals';
import { instantOf, wallTime } from './zone.ts';

const BERLIN = 'Europe/Berlin';

test('an instant is shown as the clocks of a zone show it, and found again', () => {
  expect(wallTime('2026-03-01T01:00:00Z', BERLIN)).toEqual({ date: '2026-03-01', time: '02:00' });
  expect(wallTime('2026-07-01T22:30:00Z', BERLIN)).toEqual({ date: '2026-07-02', time: '00:30' });
  for (const zone of [BERLIN, 'UTC', 'America/St_Johns', 'Pacific/Kiritimati'])
    for (const instant of [
      '2026-03-01T01:00:00.000Z',
      '2026-10-25T12:15:00.000Z',
      '2026-12-31T23:59:00.000Z',
    ])
      expect(instantOf(wallTime(instant, zone), zone)).toBe(instant);
});

test('a time that is shown twice is its first, one that is left out a while later', () => {
  expect(instantOf({ date: '2026-10-25', time: '02:30' }, BERLIN)).toBe('2026-10-25T00:30:00.000Z');
  expect(instantOf({ date: '2026-03-29', time: '02:30' }, BERLIN)).toBe('2026-03-29T01:30:00.000Z');
});

test('what is no date or time has no instant', () => {
  expect(instantOf({ date: '', time: '02:00' }, BERLIN)).toBeUndefined();
  expect(instantOf({ date: '2026-03-01', time: '' }, BERLIN)).toBeUndefined();
});
