import { describe, expect, test } from '@jest/globals';
import { type Period, planRetention, planSpace, type RetentionFile, type RetentionRules } from './plan.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const NO_RULES: RetentionRules = { keepCount: null, limitDays: null, keep: null, timeZone: 'UTC' };

function file(id: string, time: string | number, changes: Partial<RetentionFile> = {}): RetentionFile {
  const newest = typeof time === 'number' ? time : Date.parse(time);
  const flags = { isGood: true, isProtected: false, isRead: false, isBusy: false, isExtendable: false };
  return { id, domainId: 'vm', newest, ...flags, size: 1, ...changes };
}

function reasons(files: RetentionFile[], rules: Partial<RetentionRules>, now = '2026-03-31T12:00:00Z') {
  const plan = planRetention(files, { ...NO_RULES, ...rules }, Date.parse(now));
  return Object.fromEntries(plan.map(({ id, action, reason }) => [id, `${action} ${reason}`]));
}

/** One each day at noon, the newest first: d0, d1 … */
const days = (count: number, until = '2026-03-31T12:00:00Z') =>
  Array.from({ length: count }, (_, index) => file(`d${index}`, Date.parse(until) - index * DAY));

const deleted = (plan: Record<string, string>) =>
  Object.keys(plan).filter(id => plan[id]!.startsWith('delete'));

test('without rules all stay', () => {
  expect(deleted(reasons(days(5), {}))).toEqual([]);
});

test('at most so many good ones, the oldest goes first', () => {
  expect(reasons(days(4).reverse(), { keepCount: 2 })).toEqual({
    d0: 'keep newest_good',
    d1: 'keep within_rules',
    d2: 'delete beyond_count',
    d3: 'delete beyond_count',
  });
});

test('one that is older than so many days goes, one of that age stays', () => {
  const plan = reasons([...days(3), file('edge', Date.parse('2026-03-31T12:00:00Z') - 2 * DAY + 1)], {
    limitDays: 2,
  });
  expect(plan).toMatchObject({ d1: 'keep within_rules', d2: 'keep within_rules', edge: 'keep within_rules' });
  expect(reasons(days(4), { limitDays: 2 })).toMatchObject({ d3: 'delete too_old' });
});

test('the last good one stays, however old, and each VM has its own', () => {
  const old = file('old', '2020-01-01T00:00:00Z');
  const other = file('other', '2021-01-01T00:00:00Z', { domainId: 'vm2' });
  expect(reasons([old, other], { limitDays: 1, keepCount: 1 })).toEqual({
    old: 'keep newest_good',
    other: 'keep newest_good',
  });
});

test.each([
  ['isProtected', 'protected'],
  ['isRead', 'being_read'],
  ['isBusy', 'busy'],
  ['isExtendable', 'extendable'],
])('%s: it stays, whatever the rules say', (flag, reason) => {
  const [newest, ...others] = days(3);
  const guarded = file('guarded', '2020-01-01T00:00:00Z', { [flag]: true });
  const plan = reasons([newest!, ...others, guarded], { keepCount: 1, limitDays: 1 });
  expect(plan).toMatchObject({
    d0: 'keep newest_good',
    d1: 'delete beyond_count',
    guarded: `keep ${reason}`,
  });
});

test('what is protected takes no place of those that the rules keep', () => {
  const [first, second, third] = days(3);
  expect(deleted(reasons([first!, { ...second!, isProtected: true }, third!], { keepCount: 2 }))).toEqual([]);
});

describe('failed and damaged ones', () => {
  const bad = (id: string, daysAgo: number) =>
    file(id, Date.parse('2026-03-31T12:00:00Z') - daysAgo * DAY, { isGood: false });

  test('do not count as good, and go by the same rules once good ones are newer', () => {
    const plan = reasons(
      [bad('b0', 0), ...days(3).map(f => ({ ...f, newest: f.newest - DAY })), bad('b9', 9)],
      { keepCount: 2 },
    );
    expect(plan).toEqual({
      b0: 'keep not_yet_replaced',
      d0: 'keep newest_good',
      d1: 'keep within_rules',
      d2: 'delete beyond_count',
      b9: 'delete beyond_count',
    });
  });

  test.each<Partial<RetentionRules>>([{ keepCount: 1 }, { limitDays: 1 }, { keep: { daily: 1 } }])(
    'stay while no good one is newer (%j)',
    rules => {
      expect(deleted(reasons([bad('b1', 100), bad('b2', 200)], rules))).toEqual([]);
      expect(deleted(reasons([bad('b1', 100), ...days(1, '2020-01-01T00:00:00Z')], rules))).toEqual([]);
    },
  );
});

describe('periods', () => {
  const kept = (files: RetentionFile[], keep: Partial<Record<Period, number>>, timeZone = 'UTC') => {
    const plan = reasons(files, { keep, timeZone });
    return Object.keys(plan)
      .filter(id => plan[id]!.startsWith('keep'))
      .map(id => `${id} ${plan[id]!.slice(5)}`);
  };

  test('each period keeps its newest', () => {
    const files = [
      file('a', '2026-03-31T20:00:00Z'),
      file('b', '2026-03-31T08:00:00Z'),
      file('c', '2026-03-30T20:00:00Z'),
      file('d', '2026-03-30T08:00:00Z'),
      file('e', '2026-03-28T08:00:00Z'),
    ];
    expect(kept(files, { daily: 2 })).toEqual(['a newest_good', 'c keep_daily']);
    expect(kept(files, { daily: 3 })).toEqual(['a newest_good', 'c keep_daily', 'e keep_daily']);
  });

  test('a period of which an earlier rule keeps one is not counted', () => {
    // 2026-03-31 is a Tuesday: weeks end on the 29th, 22nd, 15th
    expect(kept(days(60), { daily: 3, weekly: 2, monthly: 1 })).toEqual([
      'd0 newest_good',
      'd1 keep_daily',
      'd2 keep_daily',
      'd9 keep_weekly',
      'd16 keep_weekly',
      'd31 keep_monthly',
    ]);
  });

  test('days and hours begin where the zone says', () => {
    const files = [
      file('a', '2026-03-31T23:30:00Z'),
      file('b', '2026-03-31T22:30:00Z'),
      file('c', '2026-03-31T21:30:00Z'),
    ];
    expect(kept(files, { daily: 2 }, 'Europe/Berlin')).toEqual(['a newest_good', 'c keep_daily']);
    expect(kept(files, { daily: 2 })).toEqual(['a newest_good']);
  });

  test('an hour that the clocks show twice is two', () => {
    const files = [file('a', '2026-10-25T01:30:00Z'), file('b', '2026-10-25T00:30:00Z')];
    expect(kept(files, { hourly: 2 }, 'Europe/Berlin')).toEqual(['a newest_good', 'b keep_hourly']);
  });
});

describe('space', () => {
  const gone = (files: RetentionFile[], missing: number) => planSpace(files, missing).map(({ id }) => id);
  const sized = days(4).map((each, index) => ({ ...each, size: 10 * (index + 1) }));

  test('the oldest go until there is enough', () => {
    expect(gone(sized, 40)).toEqual(['d3']);
    expect(gone(sized, 41)).toEqual(['d3', 'd2']);
  });

  test('none goes when all would not be enough', () => {
    expect(gone(sized, 91)).toEqual([]);
    expect(gone(sized, 90)).toEqual(['d3', 'd2', 'd1']);
  });

  test('the newest good one of each VM stays, and what is guarded', () => {
    const files = [
      ...sized.slice(0, 2),
      file('p', '2020-01-01T00:00:00Z', { isProtected: true, size: 1000 }),
      file('only', '2019-01-01T00:00:00Z', { domainId: 'vm2', size: 1000 }),
    ];
    expect(gone(files, 20)).toEqual(['d1']);
    expect(gone(files, 21)).toEqual([]);
  });
});
