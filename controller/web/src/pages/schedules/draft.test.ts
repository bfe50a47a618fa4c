import { expect, test } from '@jest/globals';
import { bodyOf, type Draft, draftOf, kindOf, missingOf, newDraft, withKind } from './draft.ts';

const NOW = Date.parse('2026-03-01T12:00:00Z');
const fresh = (changes: Partial<Draft> = {}): Draft => ({ ...newDraft('Europe/Berlin', NOW), ...changes });

test('a new one runs each night, from the next day on', () => {
  expect(bodyOf(fresh())).toMatchObject({ start_date: '2026-03-02T01:00:00.000Z', all: true, weekdays: [] });
});

test('what does not belong to what was chosen is not sent', () => {
  const weekly = fresh({
    periodicity: 'daily',
    weekdays: ['mon'],
    cron: '* * * * *',
    all: true,
    entities: ['x'],
  });
  expect(bodyOf(weekly)).toMatchObject({ weekdays: [], cron: '', entities: [] });
  expect(bodyOf({ ...weekly, periodicity: 'monthly', month_day: 0 })).toMatchObject({ weekdays: ['mon'] });
  const full = fresh({ increment_limit: 7, full_weekdays: ['sun'], keep_states: 3 });
  expect(bodyOf(full)).toMatchObject({ increment_limit: 0, full_weekdays: [], keep_states: 0 });
  expect(bodyOf(withKind(full, 'increment'))).toMatchObject({
    increment_limit: 7,
    options: { increment: true },
  });
  const verify = fresh({ action: 'verify', keep_count: 3, options: { compress: true } });
  expect(bodyOf(verify)).toMatchObject({ keep_count: 0, options: {}, keep: { daily: 0 } });
});

test('the kind is one of three, and the other options stay', () => {
  const draft = withKind(fresh({ options: { compress: true } }), 'incremental');
  expect([kindOf(draft), draft.options]).toEqual([
    'incremental',
    { compress: true, can_be_incremental: true },
  ]);
  expect(withKind(draft, 'full').options).toEqual({ compress: true });
});

test('a start that is not moved stays to the second', () => {
  const { date: _date, time: _time, ...settings } = fresh();
  const before = { ...settings, start_date: '2026-01-01T01:00:17.000Z' } as never;
  const draft = draftOf(before);
  expect([draft.date, draft.time]).toEqual(['2026-01-01', '02:00']);
  expect(bodyOf(draft, before)).toMatchObject({ start_date: '2026-01-01T01:00:17.000Z' });
  expect(bodyOf({ ...draft, time: '03:00' }, before)).toMatchObject({
    start_date: '2026-01-01T02:00:00.000Z',
  });
});

test('a start that was emptied is missed, not left as it was', () => {
  expect(missingOf(fresh())).toEqual([]);
  expect(missingOf(fresh({ date: '', time: '' }))).toEqual(['date', 'time']);
  const cron = fresh({ periodicity: 'cron', time: '', cron: '0 1 * * *' });
  expect(missingOf(cron)).toEqual([]);
  expect(missingOf({ ...cron, cron: '' })).toEqual(['cron']);
  expect(missingOf(fresh({ periodicity: 'monthly', month_day: 0, weekdays: [] }))).toEqual(['weekdays']);
  expect(missingOf(fresh({ all: false }))).toEqual(['entities']);
  expect(missingOf(fresh({ all: false, tags: ['x'] }))).toEqual([]);
  expect(bodyOf(cron)).toMatchObject({ start_date: '2026-03-01T23:00:00.000Z' });
});
