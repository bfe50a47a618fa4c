/**
 * Backups give way to running VMs. A data pool may have a target: how long VMs may wait for its disks, on the average. While they wait longer,
 * what backups read that come from the pool or go to it is slowed down, all of them together, and let go again when they wait less.
 * What is seen are the counters of QEMU, half a second's at a time; what a backup is slowed to is bounded below, so that it always gets on.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { reasonOf } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { MiB } from '@virtkeep/shared/units';
import type { PoolPlace } from '../pools/index.ts';
import { BandwidthLimits, type JoinedLimits, type LimitClock } from './limits.ts';

export interface LatencyTarget {
  pool: PoolPlace;
  /** The longest average wait that is well, ms. */
  targetMs: number;
}

/** What a disk of a running VM has done since that was started. */
export interface Waits {
  /** Reads, writes and flushes that have ended. */
  operations: number;
  waitedNs: number;
}

/** Of the disks of running VMs, by the pool and by the disk. */
export type WaitsByPool = ReadonlyMap<string, ReadonlyMap<string, Waits>>;

export interface Seen {
  /** What backups may read a second now, bytes. */
  rate: number;
  /** What they have read a second since the last look. */
  readRate: number;
  /** The average wait of all operations since then, ms; undefined: there were too few to tell. */
  waitedMs: number | undefined;
  targetMs: number;
}

const LOOK_MS = 500;
/** Fewer operations than these in a look say nothing of their storage. */
const FEWEST_OPERATIONS = 4;
/** Backups are not slowed down below this, all of a pool together, bytes per second. */
const SLOWEST = 4 * MiB;
/** More than any storage has: as if there were no limit. */
const UNBOUNDED = 1e12;
const DOWN = 0.75;
const DOWN_FAST = 0.5;
const UP = 1.25;
/** Below this part of the target there is room for more. */
const ROOM = 0.8;

/** The rate until the next look: down from what was really read, up from what was allowed. */
export function nextRate({ rate, readRate, waitedMs, targetMs }: Seen): number {
  if (waitedMs === undefined || waitedMs < ROOM * targetMs) return Math.min(UNBOUNDED, rate * UP);
  if (waitedMs <= targetMs) return rate;
  const from = Math.min(rate, Math.max(readRate, SLOWEST));
  return Math.max(SLOWEST, from * (waitedMs > 2 * targetMs ? DOWN_FAST : DOWN));
}

/** The average wait for all disks that were there before, too. */
export function waitedSince(
  before: ReadonlyMap<string, Waits>,
  now: ReadonlyMap<string, Waits>,
): number | undefined {
  let [operations, waitedNs] = [0, 0];
  for (const [disk, { operations: all, waitedNs: allNs }] of now) {
    const earlier = before.get(disk);
    // a VM that was started anew counts from nothing
    if (!earlier || all < earlier.operations) continue;
    operations += all - earlier.operations;
    waitedNs += allNs - earlier.waitedNs;
  }
  return operations < FEWEST_OPERATIONS ? undefined : waitedNs / operations / 1e6;
}

/** Of a pool whose target somebody keeps to. */
interface Watched {
  target: LatencyTarget;
  rate: number;
  readBytes: number;
  seen: ReadonlyMap<string, Waits>;
  /** They hear how fast they may read; an empty text: as fast as they can. */
  users: Set<(text: string) => void>;
}

export interface LatencyTargetsOptions {
  /** Reads the counters of running VMs' disks in these pools. */
  waits: (pools: readonly PoolPlace[]) => Promise<WaitsByPool>;
  log: Logger;
  /** Tests have their own. */
  clock?: LimitClock;
}

const SYSTEM_CLOCK: LimitClock = {
  nowMs: () => performance.now(),
  sleep: async (ms, signal) => {
    await delay(ms, undefined, { signal, ref: false }).catch(() => {});
  },
};

export class LatencyTargets {
  readonly #options: LatencyTargetsOptions;
  readonly #clock: LimitClock;
  readonly #limits: BandwidthLimits;
  readonly #watched = new Map<string, Watched>();
  #ending = new AbortController();

  constructor(options: LatencyTargetsOptions) {
    this.#options = options;
    this.#clock = options.clock ?? SYSTEM_CLOCK;
    this.#limits = new BandwidthLimits(options.clock);
  }

  /** Ids of the pools whose disks are looked at. */
  get pools(): string[] {
    return [...this.#watched.keys()];
  }

  /**
   * An operation keeps to these targets from now on, and others of the same pools to those that were told last.
   * @param other limits that it keeps to as well, and leaves with these. What reads at a fixed rate keeps to them alone.
   * @param say hears in words how fast it may read
   */
  join(
    targets: readonly LatencyTarget[],
    other: JoinedLimits | undefined,
    say: (text: string) => void,
  ): JoinedLimits {
    const isFirst = this.#watched.size === 0;
    const mine = targets.map(target => this.#enter(target, say));
    const own = this.#limits.join(
      mine.map(({ target, rate }) => ({ key: target.pool.id, bytesPerSecond: rate })),
    );
    if (isFirst && mine.length > 0) void this.#look();
    let hasLeft = false;
    return {
      take: async (bytes, signal) => {
        for (const watched of mine) watched.readBytes += bytes;
        await other?.take(bytes, signal);
        if (mine.some(({ rate }) => rate < UNBOUNDED)) await own.take(bytes, signal);
      },
      atFixedRate: work => (other ? other.atFixedRate(work) : work(0)),
      leave: () => {
        if (hasLeft) return;
        hasLeft = true;
        other?.leave();
        own.leave();
        for (const watched of mine) this.#leave(watched, say);
      },
    };
  }

  #enter(target: LatencyTarget, say: (text: string) => void): Watched {
    const { id } = target.pool;
    const watched = this.#watched.get(id) ?? {
      target,
      rate: UNBOUNDED,
      readBytes: 0,
      seen: new Map(),
      users: new Set(),
    };
    watched.target = target;
    watched.users.add(say);
    this.#watched.set(id, watched);
    return watched;
  }

  #leave(watched: Watched, say: (text: string) => void): void {
    watched.users.delete(say);
    if (watched.users.size === 0) this.#watched.delete(watched.target.pool.id);
    if (this.#watched.size > 0) return;
    this.#ending.abort();
    this.#ending = new AbortController();
  }

  /** Looks for as long as somebody keeps to a target. */
  async #look(): Promise<void> {
    const { signal } = this.#ending;
    for (let sinceMs = this.#clock.nowMs(); !signal.aborted; ) {
      try {
        const found = await this.#options.waits([...this.#watched.values()].map(({ target }) => target.pool));
        const nowMs = this.#clock.nowMs();
        if (!signal.aborted) this.#judge(found, (nowMs - sinceMs) / 1000);
        sinceMs = nowMs;
      } catch (error) {
        // the rates stay as they are
        this.#options.log.debug('the waits of VMs for their disks are not known', {
          reason: reasonOf(error),
        });
      }
      await this.#clock.sleep(LOOK_MS, signal);
    }
  }

  #judge(found: WaitsByPool, seconds: number): void {
    for (const [id, watched] of this.#watched) {
      const now = found.get(id) ?? new Map<string, Waits>();
      const { target, rate, readBytes } = watched;
      const waitedMs = waitedSince(watched.seen, now);
      const readRate = seconds > 0 ? readBytes / seconds : 0;
      const next = nextRate({ rate, readRate, waitedMs, targetMs: target.targetMs });
      Object.assign(watched, { seen: now, readBytes: 0, rate: next });
      if (next === rate) continue;
      this.#limits.change(id, next);
      if (rate < UNBOUNDED || next < UNBOUNDED) this.#tell(watched, waitedMs);
    }
  }

  #tell({ target, rate, users }: Watched, waitedMs = 0): void {
    const { pool, targetMs } = target;
    const text =
      rate >= UNBOUNDED
        ? ''
        : `Reading at most ${Math.round(rate / MiB)} MiB/s: VMs wait ${waitedMs.toFixed(1)} ms for disks of ${pool.name}, whose target is ${targetMs} ms.`;
    for (const say of users) say(text);
  }
}
