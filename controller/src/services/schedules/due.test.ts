import { expect, test } from '@jest/globals';
import { whatIsDue } from './due.ts';
import { DueTimes, type Recurrence } from './due-times.ts';

const at = (text: string) => Date.parse(`2026-${text}:00Z`);
const times = (recurrence: Recurrence) =>
  new DueTimes({ recurrence, start: at('05-01T02:00'), timeZone: 'UTC' });
const daily = times({ periodicity: 'daily' });

test('nothing before it is due', () => {
  expect(whatIsDue(daily, at('05-03T02:00'), 'run_once', at('05-03T01:59'))).toBeNull();
});

test.each(['run_once', 'skip'] as const)('one that is due begins, and the next is known (%s)', missedRun => {
  for (const now of ['05-03T02:00', '05-03T02:10'])
    expect(whatIsDue(daily, at('05-03T02:00'), missedRun, at(now))).toEqual({
      run: at('05-03T02:00'),
      missed: null,
      next: at('05-04T02:00'),
    });
});

test('what was due while nobody was there begins once, or is recorded as missed', () => {
  const now = at('05-06T12:00');
  const next = at('05-07T02:00');
  expect(whatIsDue(daily, at('05-03T02:00'), 'run_once', now)).toEqual({
    run: at('05-06T02:00'),
    missed: { first: at('05-03T02:00'), last: at('05-05T02:00'), count: 3 },
    next,
  });
  expect(whatIsDue(daily, at('05-03T02:00'), 'skip', now)).toEqual({
    run: null,
    missed: { first: at('05-03T02:00'), last: at('05-06T02:00'), count: 4 },
    next,
  });
});

test('with "skip" the one of just now begins, and those before are missed', () => {
  expect(whatIsDue(daily, at('05-05T02:00'), 'skip', at('05-06T02:05'))).toEqual({
    run: at('05-06T02:00'),
    missed: { first: at('05-05T02:00'), last: at('05-05T02:00'), count: 1 },
    next: at('05-07T02:00'),
  });
});

test('a task that is due once is never due again', () => {
  const once = times({ periodicity: 'once' });
  const due = at('05-01T02:00');
  expect(whatIsDue(once, due, 'run_once', at('06-01T00:00'))).toEqual({ run: due, missed: null, next: null });
  expect(whatIsDue(once, due, 'skip', at('06-01T00:00'))).toEqual({
    run: null,
    missed: { first: due, last: due, count: 1 },
    next: null,
  });
});

test('after a year away from a task of each minute little is computed', () => {
  const often = times({ periodicity: 'cron', expression: '* * * * *' });
  const now = Date.parse('2027-05-01T00:00:30Z');
  expect(whatIsDue(often, at('05-01T02:00'), 'run_once', now)).toMatchObject({
    run: Date.parse('2027-05-01T00:00:00Z'),
    missed: { first: at('05-01T02:00'), count: 1000 },
    next: Date.parse('2027-05-01T00:01:00Z'),
  });
});
