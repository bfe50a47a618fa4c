import { describe, expect, test } from '@jest/globals';
import { type Period, planRetention, planSpace, type RetentionFile, type RetentionRules } from './plan.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const NO_RULES: RetentionRules = { keepCount: null, limitDays: null, keep: null, timeZone: 'UTC' };

function file(id: string, time: string | number, changes: Partial<RetentionFile> = {}): RetentionFile {
  const newest = typeof time === 'number' ? time : Date.parse(time);
  const flags = { isGood: true, isProtected: false, isRead: false, isBusy: false, isExtendable: false };
  return { id, domainId: 'vm', newest, newestWhole: newest, ...flags, size: 1, ...changes };
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

describe('the newest good one is not decided by a wrong clock, nor by a restore point that leaves out disks', () => {
  const NOON = Date.parse('2026-03-31T12:00:00Z');

  test('one that is yet to come by more than a day takes nobody the place of the newest', () => {
    const files = [file('ahead', '2026-08-01T12:00:00Z'), ...days(3)];
    expect(reasons(files, { keepCount: 1 })).toEqual({
      ahead: 'keep newest_good',
      d0: 'keep newest_good',
      d1: 'delete beyond_count',
      d2: 'delete beyond_count',
    });
  });

  test('by less it is the newest', () => {
    const files = [file('ahead', NOON + DAY), ...days(2)];
    expect(deleted(reasons(files, { keepCount: 1 }))).toEqual(['d0', 'd1']);
  });

  test('one whose newest restore point leaves out disks does not, either', () => {
    const partial = file('partial', NOON, { newestWhole: NOON - 3 * DAY });
    const none = file('none', NOON + 1, { newestWhole: null });
    const [, d1, d2] = days(3);
    expect(reasons([partial, none, d1!, d2!], { limitDays: 1, keepCount: 1 })).toEqual({
      none: 'keep newest_good',
      partial: 'delete beyond_count',
      d1: 'keep newest_good',
      d2: 'delete too_old',
    });
  });

  test('what is damaged waits for one with all disks, and of a time that is believed', () => {
    const bad = file('bad', NOON - 2 * DAY, { isGood: false });
    const ahead = file('ahead', NOON + 100 * DAY);
    const partial = file('partial', NOON, { newestWhole: NOON - 3 * DAY });
    const reasonOfBad = (...files: RetentionFile[]) => reasons([bad, ...files], { limitDays: 1 }).bad;
    expect(reasonOfBad(ahead)).toBe('keep not_yet_replaced');
    expect(reasonOfBad(partial)).toBe('keep not_yet_replaced');
    expect(reasonOfBad(ahead, partial, file('whole', NOON - DAY))).toBe('delete too_old');
  });
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
  const NOON = Date.parse('2026-03-31T12:00:00Z');
  const gone = (files: RetentionFile[], missing: number, now = NOON) =>
    planSpace(files, missing, now).map(({ id }) => id);
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

  test('the newest one of a clock that is right stays, whatever a clock that was ahead has written', () => {
    const files = [
      file('ahead', '2026-08-01T12:00:00Z', { size: 100 }),
      file('more ahead', '2026-09-01T12:00:00Z', { size: 100 }),
      file('may', '2026-05-01T12:00:00Z', { size: 100 }),
      file('yesterday', '2026-06-30T12:00:00Z', { size: 100 }),
    ];
    const now = Date.parse('2026-07-01T12:00:00Z');
    expect(gone(files, 100, now)).toEqual(['may']);
    // nobody knows how old those are that are ahead
    expect(gone(files, 150, now)).toEqual([]);
    // one that is ahead by a day at most is the newest
    expect(gone([files[0]!, files[3]!], 100, Date.parse('2026-07-31T12:00:00Z'))).toEqual(['yesterday']);
  });

  test('with a controller whose clock is far behind none goes', () => {
    expect(gone(sized, 10, Date.parse('1970-01-01T00:00:00Z'))).toEqual([]);
  });

  test('the newest one with all disks stays, though a newer restore point leaves out some', () => {
    const time = (day: number) => Date.parse(`2026-03-0${day}T12:00:00Z`);
    const files = [
      file('a', time(7), { newestWhole: time(5) }),
      file('b', time(6)),
      file('c', time(4)),
      file('d', time(3), { newestWhole: null }),
    ];
    expect(gone(files, 2)).toEqual(['d', 'c']);
    expect(gone(files, 3)).toEqual([]);
  });

  test('where none has all disks the newest stays', () => {
    const partial = days(2).map(each => ({ ...each, newestWhole: null }));
    expect(gone(partial, 1)).toEqual(['d1']);
    expect(gone(partial, 2)).toEqual([]);
  });
});

describe('what others document of the same rules', () => {
  const keptOf = (files: RetentionFile[], keep: Partial<Record<Period, number>>) =>
    Object.entries(reasons(files, { keep }))
      .filter(([, verdict]) => verdict.startsWith('keep'))
      .map(([id]) => id)
      .sort();
  /** Named after their times. */
  const at = (...times: string[]) => times.map(time => file(time, `${time}:00Z`));
  /** One a day at 21:00, for so many days up to a Sunday. */
  const daily = (count: number) =>
    Array.from({ length: count }, (_, index) => {
      const time = Date.parse('2026-03-29T21:00:00Z') - index * DAY;
      return file(new Date(time).toISOString().slice(0, 10), time);
    });

  test('restic, "Removing snapshots according to a policy": twelve Sundays, --keep-daily 4', () => {
    const first = Date.parse('2019-09-01T11:00:00Z');
    const sundays = Array.from({ length: 12 }, (_, week) => {
      const time = first + week * 7 * DAY;
      return file(new Date(time).toISOString().slice(0, 10), time);
    });
    const last = ['2019-10-27', '2019-11-03', '2019-11-10', '2019-11-17'];
    expect(keptOf(sundays, { daily: 4 })).toEqual(last);
    expect(keptOf(sundays, { last: 4 })).toEqual(last);
    expect(keptOf(sundays, { weekly: 4 })).toEqual(last);
    expect(keptOf(sundays, { monthly: 3 })).toEqual(['2019-09-29', '2019-10-27', '2019-11-17']);
  });

  test('Proxmox prune simulator: the latest of each hour and day, and those without backups do not count', () => {
    const hours = at('2026-03-29T05:10', '2026-03-29T05:50', '2026-03-29T09:00', '2026-03-29T09:30');
    expect(keptOf(hours, { hourly: 2 })).toEqual(['2026-03-29T05:50', '2026-03-29T09:30']);
    const sparse = at('2026-01-02T01:00', '2026-01-02T23:00', '2026-02-20T12:00', '2026-03-29T12:00');
    expect(keptOf(sparse, { daily: 3 })).toEqual([
      '2026-01-02T23:00',
      '2026-02-20T12:00',
      '2026-03-29T12:00',
    ]);
  });

  test('Proxmox prune simulator: weeks are those of ISO, from Monday to Sunday, over the end of a year too', () => {
    // 2025-12-29 is the Monday of the week in which 2026 begins
    const turn = at('2025-12-28T21:00', '2025-12-29T21:00', '2026-01-04T21:00', '2026-01-05T21:00');
    expect(keptOf(turn, { weekly: 3 })).toEqual(['2025-12-28T21:00', '2026-01-04T21:00', '2026-01-05T21:00']);
  });

  test('Proxmox prune simulator: an option leaves what an earlier one covers, and looks at what is older', () => {
    expect(keptOf(daily(60), { last: 3, daily: 2 })).toEqual([
      '2026-03-25',
      '2026-03-26',
      '2026-03-27',
      '2026-03-28',
      '2026-03-29',
    ]);
    // the week of those by day is covered
    expect(keptOf(daily(60), { daily: 3, weekly: 2 })).toEqual([
      '2026-03-15',
      '2026-03-22',
      '2026-03-27',
      '2026-03-28',
      '2026-03-29',
    ]);
  });

  test('Proxmox Backup Server, pruning: what is not finished goes, unless it is newer than the last that is', () => {
    const older = file('older', '2026-03-20T00:00:00Z', { isGood: false });
    const newer = file('newer', '2026-03-30T00:00:00Z', { isGood: false });
    expect(keptOf([...daily(20), older, newer], { last: 2 })).toEqual(['2026-03-28', '2026-03-29', 'newer']);
  });

  test('Proxmox VE, backup retention: its example for daily backups keeps what it says it does', () => {
    const kept = keptOf(daily(11 * 366), {
      last: 3,
      daily: 13,
      weekly: 8,
      monthly: 11,
      yearly: 9,
    });
    expect(kept).toHaveLength(3 + 13 + 8 + 11 + 9);
    const days = kept.toReversed();
    // two weeks of days
    expect(days.slice(0, 14)).toEqual(
      daily(14)
        .map(({ id }) => id)
        .sort()
        .reverse(),
    );
    const span = (index: number) => (Date.parse(days[0]!) - Date.parse(days[index]!)) / DAY;
    // two months of weeks, a year of months, and of each of ten years
    expect(span(3 + 13 + 8 - 1)).toBeGreaterThanOrEqual(62);
    expect(span(3 + 13 + 8 + 11 - 1)).toBeGreaterThanOrEqual(365);
    expect(new Set(kept.map(day => day.slice(0, 4))).size).toBeGreaterThanOrEqual(10);
  });
});
