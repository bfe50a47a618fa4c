/** How fast backups may read while running VMs wait for the disks of a pool: a multiplicative controller, pure. */
import { MiB } from '@virtkeep/shared/units';

/** What guests wait for. Each is judged by itself: many writes into a cache would hide that every flush takes long. */
export const WAITS = ['reads', 'writes', 'flushes'] as const;

/** Operations that have ended, and how long all of them took. */
export interface Waits {
  operations: number;
  waitedNs: number;
}

/** What a disk of a running VM has done since that was started; all of it only grows. */
export type DiskCounters = Record<(typeof WAITS)[number], Waits>;

/** Of the disks of running VMs, by the pool and by the disk. */
export type CountersByPool = ReadonlyMap<string, ReadonlyMap<string, DiskCounters>>;

/** What one sample of a pool tells. */
export interface Sample {
  /** What backups have read a second since the last sample, bytes. */
  throughput: number;
  /** Of the kind of operations that took longest since then, ms; undefined: there were too few to tell. */
  averageWaitMs: number | undefined;
  targetMs: number;
}

export interface Control {
  /** What backups may read a second until the next sample, all of the pool together, bytes. */
  rate: number;
  /** How long VMs waited when the slowing began, ms; undefined: nothing is slowed. */
  begunAtMs: number | undefined;
  /** Samples in a row that found them waiting too long though backups were as slow as they may be. */
  inVain: number;
  /** Samples that are left of a time in which nothing is slowed, because it was in vain. */
  resting: number;
}

/** More than any storage has: as if there were no limit. */
export const UNBOUNDED = 1e12;
export const FREE: Control = { rate: UNBOUNDED, begunAtMs: undefined, inVain: 0, resting: 0 };
/** Backups are not slowed down below this, all of a pool together, bytes per second: a layer of each VM grows meanwhile. */
const SLOWEST = 4 * MiB;
/** Fewer operations than these say nothing of their storage. */
const FEWEST_OPERATIONS = 4;
// Steps are parts of the rate, not bytes: storage differs a thousandfold, and from the slowest to the fastest it is half a minute so.
const DOWN = 0.75;
const DOWN_FAST = 0.5;
const UP = 1.25;
/** Below this part of the target there is room for more. */
const ROOM = 0.8;
/** After so many in vain it was not the backups, unless VMs wait less than before by this part. */
const MOST_IN_VAIN = 20;
const BETTER = 0.7;
/** Then so many samples pass before it is tried again. */
const REST = 240;

/** The rate until the next sample: down from what was really read, up from what was allowed. */
function nextRate(rate: number, { throughput, averageWaitMs, targetMs }: Sample): number {
  if (averageWaitMs === undefined || averageWaitMs < ROOM * targetMs) return Math.min(UNBOUNDED, rate * UP);
  // nothing was read: they wait for something else
  if (averageWaitMs <= targetMs || throughput === 0) return rate;
  const from = Math.min(rate, Math.max(throughput, SLOWEST));
  return Math.max(SLOWEST, from * (averageWaitMs > 2 * targetMs ? DOWN_FAST : DOWN));
}

/**
 * What holds until the next sample. Where VMs wait as long as before although backups are as slow as they may be, something else keeps
 * them waiting (a limit of their own, a guest that asks too much): the backups go on as fast as they can, and it is tried again later.
 */
export function nextControl(control: Control, sample: Sample): Control {
  if (control.resting > 0) return { ...FREE, resting: control.resting - 1 };
  const { averageWaitMs = 0, targetMs } = sample;
  const rate = nextRate(control.rate, sample);
  if (rate >= UNBOUNDED) return FREE;
  const begunAtMs = control.begunAtMs ?? averageWaitMs;
  const inVain = rate === SLOWEST && averageWaitMs > targetMs ? control.inVain + 1 : 0;
  if (inVain >= MOST_IN_VAIN && averageWaitMs > BETTER * begunAtMs) return { ...FREE, resting: REST };
  return { rate, begunAtMs, inVain, resting: 0 };
}

/** Of all disks that were there before, too, ms an operation of the kind that took longest. */
export function averageWait(
  before: ReadonlyMap<string, DiskCounters>,
  now: ReadonlyMap<string, DiskCounters>,
): number | undefined {
  const waits = WAITS.map(kind => averageWaitOf(kind, before, now)).filter(wait => wait !== undefined);
  return waits.length === 0 ? undefined : Math.max(...waits);
}

function averageWaitOf(
  kind: (typeof WAITS)[number],
  before: ReadonlyMap<string, DiskCounters>,
  now: ReadonlyMap<string, DiskCounters>,
): number | undefined {
  let [operations, waitedNs] = [0, 0];
  for (const [disk, counters] of now) {
    const earlier = before.get(disk);
    // a VM that was started anew counts from nothing
    if (!earlier || WAITS.some(one => counters[one].operations < earlier[one].operations)) continue;
    operations += counters[kind].operations - earlier[kind].operations;
    waitedNs += counters[kind].waitedNs - earlier[kind].waitedNs;
  }
  return operations < FEWEST_OPERATIONS ? undefined : waitedNs / operations / 1e6;
}
