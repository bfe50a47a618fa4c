import { expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import {
  averageWaits,
  BEGINNING,
  type Control,
  type DiskCounters,
  FREE,
  longestOf,
  nextControl,
  UNBOUNDED,
} from './latency-control.ts';

const TARGET = 10;
const sample = (waitMs: number | undefined, throughput = 400 * MiB) => ({
  waitsMs: waitMs === undefined ? {} : { all: waitMs },
  throughput,
  targetMs: TARGET,
});
const slowed = (rate: number, allMs = 30): Control => ({ ...FREE, rate, begunAtMs: { all: allMs } });
const rateAfter = (control: Control, ...[waitMs, throughput]: Parameters<typeof sample>) =>
  nextControl(control, sample(waitMs, throughput)).rate;

test('down from what was read, up from what was allowed, and never to nothing', () => {
  expect(rateAfter(FREE, 15)).toBe(300 * MiB);
  expect(rateAfter(FREE, 25)).toBe(200 * MiB);
  expect(rateAfter(FREE, 25, 1)).toBe(4 * MiB);
  expect(rateAfter(slowed(100 * MiB), 25)).toBe(50 * MiB);
  // near the target it stays
  expect(rateAfter(slowed(100 * MiB), 9)).toBe(100 * MiB);
  expect(rateAfter(slowed(100 * MiB), 5)).toBe(125 * MiB);
  expect(rateAfter(slowed(100 * MiB), undefined)).toBe(125 * MiB);
  expect(nextControl(slowed(UNBOUNDED * 0.9), sample(1))).toEqual(FREE);
});

test('waits while nothing is read are nobody’s fault', () => {
  expect(rateAfter(FREE, 500, 0)).toBe(UNBOUNDED);
  expect(rateAfter(slowed(100 * MiB), 500, 0)).toBe(100 * MiB);
});

/** As many samples, one after the other. */
const after = (control: Control, samples: number, waitMs: number): Control =>
  Array.from({ length: samples }).reduce<Control>(now => nextControl(now, sample(waitMs, now.rate)), control);

test('who begins gets twice as much with each sample that is well and in which it read, until VMs wait too long once', () => {
  const second = nextControl(BEGINNING, sample(5));
  expect([second.rate, rateAfter(second, undefined), rateAfter(second, 5, 0)]).toEqual(
    [128, 256, 128].map(rate => rate * MiB),
  );
  // as long as they may is well, also where they wait so long anyway
  expect(after(BEGINNING, 20, TARGET)).toEqual(FREE);
  expect(nextControl(second, sample(15, 0))).toEqual(second);
  const late = nextControl(second, sample(15));
  expect([late.rate, rateAfter(late, 5)]).toEqual([96 * MiB, 120 * MiB]);
});

test('one that began slowly learns what its full speed does before it is believed that it is in vain', () => {
  let free = nextControl(BEGINNING, sample(25));
  while (free.rate < UNBOUNDED) free = nextControl(free, sample(21, free.rate));
  expect(free.resting).toBe(1);
  free = nextControl(free, sample(300));
  expect(free).toEqual(FREE);
  const slowed = nextControl(free, sample(300));
  expect([slowed.rate, slowed.begunAtMs]).toEqual([200 * MiB, { all: 300 }]);
  expect(after(slowed, 100, 21).rate).toBe(4 * MiB);
  const helpless = after(nextControl(free, sample(25)), 60, 21);
  expect([helpless.rate, helpless.resting > 100]).toEqual([UNBOUNDED, true]);
});

test('one sample that deceived does not keep anything slow for ever', () => {
  const deceived = nextControl(FREE, sample(300));
  const slow = after(deceived, 200, 25);
  expect(slow.rate).toBe(4 * MiB);
  const helpless = after(slow, 200, 25);
  expect([helpless.rate, helpless.resting > 0]).toEqual([UNBOUNDED, true]);
});

test('slowing that changes nothing ends for a while, and is tried again then', () => {
  const begun = nextControl(FREE, sample(50));
  const helpless = after(begun, 40, 50);
  expect(helpless.rate).toBe(UNBOUNDED);
  expect(helpless.resting).toBeGreaterThan(200);
  const rested = after(helpless, helpless.resting, 50);
  expect([rested.rate, rested.resting]).toEqual([UNBOUNDED, 0]);
  expect(nextControl(rested, sample(50)).rate).toBe(200 * MiB);
});

test('slowing that helps goes on, though they wait too long still', () => {
  const begun = nextControl(FREE, sample(50));
  expect(after(begun, 100, 20).rate).toBe(4 * MiB);
});

const waits = (operations: number, ms: number) => ({ operations, waitedNs: ms * 1e6 });
const disk = (counters: Partial<DiskCounters>): DiskCounters => ({
  reads: waits(0, 0),
  writes: waits(0, 0),
  flushes: waits(0, 0),
  ...counters,
});

test('flushes that take long are not hidden by writes into a cache', () => {
  const before = new Map([['a', disk({})]]);
  const busy = { reads: waits(1000, 500), writes: waits(5000, 500), flushes: waits(50, 5050) };
  const found = averageWaits(before, new Map([['a', disk(busy)]]));
  expect(found).toEqual({ reads: 0.5, writes: 0.1, flushes: 101, all: 1 });
  expect(longestOf(found)).toBe(101);
});

test('few say nothing, unless they take long or are enough with others', () => {
  const since = (now: Partial<DiskCounters>) =>
    averageWaits(new Map([['a', disk({})]]), new Map([['a', disk(now)]]));
  expect(since({ flushes: waits(3, 30) })).toEqual({});
  expect(since({ flushes: waits(3, 480) })).toEqual({ flushes: 160, all: 160 });
  expect(since({ writes: waits(3, 60), flushes: waits(3, 120) })).toEqual({ all: 30 });
});

test('what waits too long still is held against what it waited before, and nothing else', () => {
  const begun = nextControl(FREE, { ...sample(0), waitsMs: { flushes: 100, reads: 30 } });
  // flushes are well; reads have a limit of their own
  const now = (control: Control) =>
    nextControl(control, { ...sample(0, control.rate), waitsMs: { flushes: 5, reads: 30 } });
  const helpless = Array.from({ length: 40 }).reduce<Control>(now, begun);
  expect([helpless.rate, helpless.resting > 0]).toEqual([UNBOUNDED, true]);
});

test('only what disks did between two samples counts', () => {
  const counters = (operations: number, ms: number) => disk({ writes: waits(operations, ms) });
  const before = new Map([
    ['a', counters(100, 5000)],
    ['anew', counters(100, 100)],
  ]);
  const now = new Map([
    ['a', counters(110, 5200)],
    // its VM was started again, and this one just now
    ['anew', counters(10, 90_000)],
    ['new', counters(1000, 90_000)],
  ]);
  expect(averageWaits(before, now)).toEqual({ writes: 20, all: 20 });
  expect(averageWaits(before, before)).toEqual({});
});
