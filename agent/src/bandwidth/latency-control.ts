/** How fast backups may read while running VMs wait for the disks of a pool: a multiplicative controller, pure. */
import { MiB } from '@virtkeep/shared/units';

/** What guests wait for. */
export const KINDS = ['reads', 'writes', 'flushes'] as const;
export type Kind = (typeof KINDS)[number];

/** Operations that have ended, and how long all of them took. */
export interface Waits {
  operations: number;
  waitedNs: number;
}

/** What a disk of a running VM has done since that was started; all of it only grows. */
export type DiskCounters = Record<Kind, Waits>;

/** Of the disks of running VMs, by the pool and by the disk. */
export type CountersByPool = ReadonlyMap<string, ReadonlyMap<string, DiskCounters>>;

/**
 * How long operations have taken on the average, ms, of all kinds together and of each: many writes into a cache would hide that every flush
 * takes long. What there were too few of is absent.
 */
export type AverageWaits = Partial<Record<(typeof WAITS)[number], number>>;
const WAITS = [...KINDS, 'all'] as const;

/** What one sample of a pool tells. */
export interface Sample {
  /** What backups have read a second since the last sample, bytes. */
  throughput: number;
  /** Since then. */
  waitsMs: AverageWaits;
  targetMs: number;
}

export interface Control {
  /** What backups may read a second until the next sample, all of the pool together, bytes. */
  rate: number;
  /** Not at full speed. */
  beganSlowly: boolean;
  /** How long VMs waited when they first waited too long while something was read; undefined: they have not. */
  begunAtMs: AverageWaits | undefined;
  /** Samples in a row that found them waiting too long though backups were as slow as they may be. */
  inVain: number;
  /** Samples that are left of a time in which nothing is slowed, because it was in vain. */
  resting: number;
}

/** More than any storage has: as if there were no limit. */
export const UNBOUNDED = 1e12;
export const FREE: Control = {
  rate: UNBOUNDED,
  beganSlowly: false,
  begunAtMs: undefined,
  inVain: 0,
  resting: 0,
};
/** For a backup that begins while no other one keeps to the target: how much VMs notice is not known, so it is let go step by step. */
export const BEGINNING: Control = { ...FREE, rate: 64 * MiB, beganSlowly: true };
/** Backups are not slowed down below this, all of a pool together, bytes per second: a layer of each VM grows meanwhile. */
const SLOWEST = 4 * MiB;
/** Fewer operations than these say nothing of their storage, unless they have taken so long together. */
const FEWEST_OPERATIONS = 4;
const TELLING_NS = 250e6;
// Steps are parts of the rate, not bytes: storage differs a thousandfold, and from the slowest to the fastest it is half a minute so.
const DOWN = 0.75;
const DOWN_FAST = 0.5;
const UP = 1.25;
const CLIMB = 2;
/** Below this part of the target there is room for more. */
const ROOM = 0.8;
/** After so many in vain it was not the backups, unless VMs wait less than before by this part. */
const MOST_IN_VAIN = 20;
const BETTER = 0.7;
/** Then so many samples pass before it is tried again. */
const REST = 240;

/** It began slowly, and VMs have not waited too long since. */
export const isClimbing = ({ beganSlowly, begunAtMs }: Control): boolean =>
  beganSlowly && begunAtMs === undefined;

/** The rate until the next sample: down from what was really read, up from what was allowed. */
function nextRate(control: Control, { throughput, waitsMs, targetMs }: Sample): number {
  const { rate } = control;
  const averageWaitMs = longestOf(waitsMs) ?? 0;
  if (isClimbing(control) && averageWaitMs <= targetMs)
    return throughput === 0 ? rate : Math.min(UNBOUNDED, rate * CLIMB);
  if (averageWaitMs < ROOM * targetMs) return Math.min(UNBOUNDED, rate * UP);
  // nothing was read: they wait for something else
  if (averageWaitMs <= targetMs || throughput === 0) return rate;
  const from = Math.min(rate, Math.max(throughput, SLOWEST));
  return Math.max(SLOWEST, from * (averageWaitMs > 2 * targetMs ? DOWN_FAST : DOWN));
}

/**
 * What holds until the next sample. Where VMs wait as long as before although backups are as slow as they may be, something else keeps
 * them waiting (a limit of their own, a guest that asks too much): the backups go on as fast as they can, and it is tried again later. Of
 * what began slowly nobody knows how long VMs wait at full speed, and one sample may deceive: then one sample is taken at full speed.
 */
export function nextControl(control: Control, sample: Sample): Control {
  if (control.resting > 0) return { ...FREE, resting: control.resting - 1 };
  const { throughput, waitsMs, targetMs } = sample;
  const rate = nextRate(control, sample);
  if (rate >= UNBOUNDED) return FREE;
  const late = WAITS.filter(one => (waitsMs[one] ?? 0) > targetMs);
  const begunAtMs = control.begunAtMs ?? (late.length > 0 && throughput > 0 ? waitsMs : undefined);
  const inVain = rate === SLOWEST && late.length > 0 ? control.inVain + 1 : 0;
  const noneIsBetter = late.every(one => waitsMs[one]! > BETTER * (begunAtMs?.[one] ?? 0));
  if (inVain >= MOST_IN_VAIN && noneIsBetter) return { ...FREE, resting: control.beganSlowly ? 1 : REST };
  if (inVain >= REST) return { ...FREE, resting: 1 };
  return { ...control, rate, begunAtMs, inVain };
}

/** Undefined: nothing is known. */
export function longestOf(waitsMs: AverageWaits): number | undefined {
  const known = Object.values(waitsMs);
  return known.length === 0 ? undefined : Math.max(...known);
}

/** Of all disks that were there before, too. */
export function averageWaits(
  before: ReadonlyMap<string, DiskCounters>,
  now: ReadonlyMap<string, DiskCounters>,
): AverageWaits {
  const since = { reads: nothing(), writes: nothing(), flushes: nothing(), all: nothing() };
  for (const [disk, counters] of now) {
    const earlier = before.get(disk);
    // a VM that was started anew counts from nothing
    if (!earlier || KINDS.some(kind => counters[kind].operations < earlier[kind].operations)) continue;
    for (const kind of KINDS)
      for (const sum of [since[kind], since.all]) {
        sum.operations += counters[kind].operations - earlier[kind].operations;
        sum.waitedNs += counters[kind].waitedNs - earlier[kind].waitedNs;
      }
  }
  const told = WAITS.filter(
    one => since[one].operations >= FEWEST_OPERATIONS || since[one].waitedNs >= TELLING_NS,
  );
  return Object.fromEntries(told.map(one => [one, since[one].waitedNs / since[one].operations / 1e6]));
}

const nothing = (): Waits => ({ operations: 0, waitedNs: 0 });
