import { describe, expect, test } from '@jest/globals';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import {
  CLOCKS_APART_MS,
  type ProtectionFacts,
  protectionOf,
  stateNow,
  stateUntil,
  verdictOf,
} from './rules.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const NOW = Date.parse('2026-03-29T08:00:00.000Z');
const ago = (ms: number) => NOW - ms;

const facts = (patch: Partial<ProtectionFacts> = {}): ProtectionFacts => ({
  isExcluded: false,
  lastGood: ago(HOUR_MS),
  lastPartial: null,
  lastAttempt: null,
  expectations: [],
  maxAgeMs: 7 * DAY_MS,
  ...patch,
});
const stateOf = (patch: Partial<ProtectionFacts>) => protectionOf(facts(patch), NOW).state;
const due = (latestDue: number | null, name = 'nightly', intervalMs: number | null = DAY_MS) => ({
  id: name,
  verbose_name: name,
  latestDue,
  intervalMs,
});
const once = (latestDue: number | null) => due(latestDue, 'once', null);
const failed = (ended: number, lastSuccess: number | null = null) => ({
  ended,
  failed: true,
  error: 'The disk is full.',
  lastSuccess,
});
const succeeded = (ended: number) => ({ ended, failed: false, error: '', lastSuccess: ended });

describe('without a task, by age', () => {
  test.each([
    ['protected', ago(0)],
    ['protected', ago(7 * DAY_MS)],
    ['late', ago(7 * DAY_MS + 1)],
    ['never', null],
    ['protected', NOW + DAY_MS],
    ['late', NOW + DAY_MS + 1],
  ])('%s', (state, lastGood) => expect(stateOf({ lastGood })).toBe(state));
});

describe('with tasks, by what was due', () => {
  const at = ago(10 * HOUR_MS);
  test.each([
    ['as new as the due time', 'protected', at, [due(at)]],
    ['a clock that is behind', 'protected', at - CLOCKS_APART_MS, [due(at)]],
    ['older', 'late', at - CLOCKS_APART_MS - 1, [due(at)]],
    ['one of two was due', 'late', ago(DAY_MS), [due(null), due(at)]],
    ['the one that was due last counts', 'late', ago(DAY_MS), [due(ago(30 * DAY_MS)), due(at)]],
    ['the same in the other order', 'late', ago(DAY_MS), [due(at), due(ago(30 * DAY_MS))]],
    ['never goes before late', 'never', null, [due(at)]],
  ] as const)('%s: %s', (_words, state, lastGood, expectations) =>
    expect(stateOf({ lastGood, expectations })).toBe(state),
  );

  const MONTH_MS = 30 * DAY_MS;
  test.each([
    ['one that was due and goes on asks for no more', 'protected', ago(40 * DAY_MS), [due(ago(41 * DAY_MS))]],
    ['the same beside one that is over', 'protected', ago(40 * DAY_MS), [due(ago(41 * DAY_MS)), once(null)]],
    ['a new one: as young as without it', 'protected', ago(7 * DAY_MS), [due(null)]],
    ['a new one: older', 'late', ago(7 * DAY_MS + 1), [due(null)]],
    ['a new one that is seldom due', 'protected', ago(MONTH_MS), [due(null, 'monthly', MONTH_MS)]],
    ['a new one that is seldom due: older', 'late', ago(MONTH_MS + 1), [due(null, 'monthly', MONTH_MS)]],
    ['once, yet to come', 'late', ago(8 * DAY_MS), [once(null)]],
    ['once, and it was', 'protected', ago(6 * DAY_MS), [once(ago(6 * DAY_MS))]],
    ['once, and it was not', 'late', ago(6 * DAY_MS), [once(ago(5 * DAY_MS))]],
    ['once, long ago', 'late', ago(30 * DAY_MS), [once(ago(30 * DAY_MS))]],
  ] as const)('%s: %s', (_words, state, lastGood, expectations) =>
    expect(stateOf({ lastGood, expectations })).toBe(state),
  );

  test('a task that does not ask for anything now is not said to have been due', () => {
    const reason = (expectations: ReturnType<typeof due>[]) =>
      protectionOf(facts({ lastGood: ago(365 * DAY_MS), expectations }), NOW).reason;
    expect(reason([due(null, 'monthly', MONTH_MS)])).toBe(
      'No scheduled task that covers it has been due and will be again, and its newest good restore point is older than 30 days.',
    );
    expect(reason([once(ago(400 * DAY_MS))])).toContain('older than 7 days');
  });

  test('the task that was due last is named', () => {
    const expectations = [due(ago(30 * DAY_MS), 'monthly'), due(at, 'nightly')];
    expect(protectionOf(facts({ lastGood: ago(DAY_MS), expectations }), NOW)).toEqual({
      state: 'late',
      last_good: '2026-03-28T08:00:00.000Z',
      age: 86_400,
      limit: '2026-03-28T22:00:00.000Z',
      reason:
        'The scheduled task nightly was due at 2026-03-28T22:00:00.000Z, and no good restore point is as new.',
    });
  });
});

describe('attempts', () => {
  test.each([
    ['a failure after the good one', 'failing', failed(ago(1000)), ago(2000)],
    ['a good one after the failure', 'protected', failed(ago(2000)), ago(1000)],
    ['at the same instant', 'failing', failed(ago(1000)), ago(1000)],
    ['the last one has succeeded', 'protected', succeeded(ago(1000)), ago(2000)],
    ['never goes before failing', 'never', failed(ago(1000)), null],
    ['late goes before failing', 'late', failed(ago(1000)), ago(8 * DAY_MS)],
  ] as const)('%s: %s', (_words, state, lastAttempt, lastGood) =>
    expect(stateOf({ lastAttempt, lastGood })).toBe(state),
  );

  const ahead = NOW + HOUR_MS;
  test.each([
    ['failing', [], failed(ago(1000), ago(HOUR_MS)), ahead],
    ['failing', [], failed(ago(1000)), ahead],
    ['late', [due(ago(10 * HOUR_MS))], succeeded(ago(20 * HOUR_MS)), ahead],
    ['late', [due(ago(10 * HOUR_MS))], failed(ago(9 * HOUR_MS), ago(11 * HOUR_MS)), ago(8 * HOUR_MS)],
    ['protected', [due(ago(10 * HOUR_MS))], succeeded(ago(9 * HOUR_MS)), ahead],
    // others made it: nothing that this controller began is so new
    ['protected', [due(ago(10 * HOUR_MS))], failed(ago(2 * DAY_MS), ago(3 * DAY_MS)), ago(HOUR_MS)],
  ] as const)(
    'a clock that is ahead makes nothing newer than the end of its backup: %s',
    (state, expectations, lastAttempt, lastGood) =>
      expect(stateOf({ expectations, lastAttempt, lastGood })).toBe(state),
  );

  test('a restore point that is not as new as it says is told with both times', () => {
    const patch = { expectations: [due(ago(10 * HOUR_MS))], lastAttempt: succeeded(ago(20 * HOUR_MS)) };
    const { reason, last_good } = protectionOf(facts({ ...patch, lastGood: ahead }), NOW);
    expect(last_good).toBe('2026-03-29T09:00:00.000Z');
    expect(reason).toContain(
      'says 2026-03-29T09:00:00.000Z, but its backup had ended by 2026-03-28T12:00:00.000Z',
    );
  });

  test('a failure is told with every state that it may be the cause of', () => {
    const lastAttempt = failed(ago(1000));
    for (const lastGood of [null, ago(8 * DAY_MS), ago(HOUR_MS)])
      expect(protectionOf(facts({ lastAttempt, lastGood }), NOW).reason).toContain('The disk is full.');
  });
});

describe('a restore point that leaves out disks on request', () => {
  const lastPartial = ago(HOUR_MS);
  const at = ago(10 * HOUR_MS);
  test.each([
    ['alone', 'never', { lastGood: null }],
    ['alone, with a task', 'never', { lastGood: null, expectations: [due(at)] }],
    ['satisfies no due time', 'late', { lastGood: ago(DAY_MS), expectations: [due(at)] }],
    ['makes nothing younger', 'late', { lastGood: ago(8 * DAY_MS) }],
    ['clears no failure', 'failing', { lastGood: ago(DAY_MS), lastAttempt: failed(ago(2 * HOUR_MS)) }],
    ['takes nothing away', 'protected', { lastGood: ago(2 * HOUR_MS), expectations: [due(at)] }],
  ] as const)('%s: %s', (_words, state, patch) => {
    const { reason, last_good } = protectionOf(facts({ ...patch, lastPartial }), NOW);
    expect(stateOf({ ...patch, lastPartial })).toBe(state);
    // the age that is told is that of what the state goes by
    expect(last_good).toBe(patch.lastGood === null ? null : new Date(patch.lastGood).toISOString());
    if (state === 'protected') expect(reason).not.toContain('leaves out');
    else expect(reason).toContain('2026-03-29T07:00:00.000Z, leaves out disks on request');
  });

  test('is told as the reason', () => {
    expect(protectionOf(facts({ lastGood: null, lastPartial }), NOW).reason).toBe(
      'It has no good restore point with all of its disks. The newest restore point, of 2026-03-29T07:00:00.000Z, leaves out disks on request (exclude_vdisks).',
    );
    const late = facts({ lastGood: ago(DAY_MS), lastPartial, expectations: [due(at)] });
    expect(protectionOf(late, NOW).reason).toBe(
      'The scheduled task nightly was due at 2026-03-28T22:00:00.000Z, and no good restore point is as new. The newest restore point, of 2026-03-29T07:00:00.000Z, leaves out disks on request (exclude_vdisks).',
    );
  });
});

test('excluded goes before all, and asks for nothing', () => {
  const patch = {
    isExcluded: true,
    lastGood: null,
    lastAttempt: failed(ago(1)),
    expectations: [due(ago(1))],
  };
  expect(protectionOf(facts(patch), NOW)).toMatchObject({ state: 'excluded', limit: null, age: null });
});

test('the verdict of the lists is that of the whole', () => {
  const { reason: _reason, limit: _limit, ...verdict } = protectionOf(facts(), NOW);
  expect(verdictOf(facts(), NOW)).toEqual(verdict);
});

test('a restore point that is yet to come has no age below zero; one of long after is not believed', () => {
  expect(protectionOf(facts({ lastGood: NOW + 3 * DAY_MS }), NOW).reason).toContain('a clock was wrong');
  expect(protectionOf(facts({ lastGood: NOW + 5000 }), NOW).age).toBe(0);
});

test('a state stays until the instant that is told', () => {
  const random = seededRandom(11);
  const hour = 3_600_000;
  const time = () => random(400) * hour;
  const maybe = <T>(value: T) => (random(4) === 0 ? null : value);
  for (let times = 0; times < 3000; times += 1) {
    const ended = time();
    const facts: ProtectionFacts = {
      isExcluded: random(10) === 0,
      lastGood: maybe(time()),
      lastPartial: null,
      lastAttempt: maybe({
        ended,
        failed: random(2) === 0,
        error: '',
        lastSuccess: maybe(ended - random(50) * hour),
      }),
      expectations: Array.from({ length: random(3) }, (_, number) => ({
        id: `${number}`,
        verbose_name: '',
        latestDue: maybe(time()),
        intervalMs: maybe(random(200) * hour),
      })),
      maxAgeMs: random(200) * hour,
    };
    for (let now = 0; now < 500 * hour; ) {
      const { state, untilMs } = stateUntil(facts, now);
      const end = Math.min(untilMs, 500 * hour);
      for (const at of [now, Math.floor((now + end) / 2), now + random(end - now), end - 1])
        expect([facts, at, stateNow(facts, at)]).toEqual([facts, at, state]);
      now = end;
    }
  }
});
