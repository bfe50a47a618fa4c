/**
 * Backups give way to running VMs. A data pool may have a target: how long VMs of this node may wait for its disks, on the average of reads,
 * of writes and of flushes. While they wait longer, what backups read that come from the pool or go to it is slowed down, all of them
 * together, and let go again when they wait less (`latency-control.ts`). The counters of QEMU are sampled for as long as somebody keeps to a
 * target.
 */
import { reasonOf } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { MiB } from '@virtkeep/shared/units';
import type { PoolPlace } from '../pools/index.ts';
import {
  averageWaits,
  BEGINNING,
  type Control,
  type CountersByPool,
  type DiskCounters,
  FREE,
  isClimbing,
  longestOf,
  nextControl,
  UNBOUNDED,
} from './latency-control.ts';
import { BandwidthLimits, type JoinedLimits, type LimitClock, SYSTEM_CLOCK } from './limits.ts';

export interface LatencyTarget {
  pool: PoolPlace;
  /** The longest average wait that is well, ms. */
  targetMs: number;
}

export interface LatencyTargetsOptions {
  /** Reads the counters of running VMs' disks in these pools. */
  counters: (pools: readonly PoolPlace[]) => Promise<CountersByPool>;
  log: Logger;
  /** Tests have their own. */
  clock?: LimitClock;
}

/** An operation that keeps to targets. */
export interface LatencyUser {
  targets: readonly LatencyTarget[];
  /** All pools of the node: a disk belongs to the innermost. */
  places: readonly PoolPlace[];
  /** Limits that it keeps to as well, and leaves with these; undefined: none. */
  other: JoinedLimits | undefined;
  /** Hears in words how fast it may read; an empty text: as fast as it can, or as it begins. */
  say: (text: string) => void;
}

const SAMPLE_MS = 500;
/** Read or written at once by each thread, at the most: a VM's flush waits behind some of these, and not behind blocks of 4 MiB. */
const PIECE_BYTES = 256 * 1024;
/** After so long without an answer nobody knows how long VMs wait. */
const STALE_MS = 10_000;
/** A rate that is at least so many times what is read holds nobody up. */
const BINDS = 4;

/** A pool whose target somebody keeps to. */
interface Watched {
  target: LatencyTarget;
  control: Control;
  readBytes: number;
  /** As last seen, of all disks that running VMs have had there meanwhile. */
  counters: ReadonlyMap<string, DiskCounters>;
  /** What is said of it now. */
  text: string;
}

interface Member {
  watched: readonly Watched[];
  say: (text: string) => void;
  /** What it has heard last. */
  text: string;
  /** Something reads for it that cannot be slowed. */
  isFixed: boolean;
}

export class LatencyTargets {
  readonly #options: LatencyTargetsOptions;
  readonly #clock: LimitClock;
  readonly #limits: BandwidthLimits;
  readonly #watched = new Map<string, Watched>();
  readonly #members = new Set<Member>();
  #places: readonly PoolPlace[] = [];
  #ending = new AbortController();
  /** One question at a time: libvirt may hang, and each keeps one of its threads. */
  #asking: Promise<void> | undefined;
  #sampledMs = 0;
  #isUnknown = false;

  constructor(options: LatencyTargetsOptions) {
    this.#options = options;
    this.#clock = options.clock ?? SYSTEM_CLOCK;
    this.#limits = new BandwidthLimits(options.clock);
  }

  /** Ids of the pools whose disks are sampled. */
  get pools(): string[] {
    return [...this.#watched.keys()];
  }

  /**
   * An operation keeps to these targets from now on, and others of the same pools to those that were told last. What reads at a fixed rate
   * is slowed by what holds when it begins.
   */
  join({ targets, places, other, say }: LatencyUser): JoinedLimits {
    const isFirst = this.#members.size === 0;
    this.#places = places;
    const watched = targets.map(target => this.#enter(target));
    const member: Member = { watched, say, text: '', isFixed: false };
    this.#members.add(member);
    const own = this.#limits.join(
      watched.map(({ target, control }) => ({ key: target.pool.id, bytesPerSecond: control.rate })),
    );
    this.#tell(member);
    if (isFirst) void this.#sample();
    const isBounded = () => watched.some(({ control }) => control.rate < UNBOUNDED);
    return {
      pieceBytes: () => (watched.some(({ counters }) => counters.size > 0) ? PIECE_BYTES : undefined),
      take: async (bytes, signal) => {
        for (const one of watched) one.readBytes += bytes;
        await other?.take(bytes, signal);
        if (isBounded()) await own.take(bytes, signal);
      },
      atFixedRate: async work => {
        // what cannot be raised later does not begin slowly
        const rates = watched.map(({ control }) => (isClimbing(control) ? UNBOUNDED : control.rate));
        const rate = Math.min(...rates);
        // programs that are told it know whole numbers alone
        const mine = Math.max(1, Math.floor(rate / 2));
        const atRate = (theirs: number) => work(rate < UNBOUNDED ? Math.min(theirs || mine, mine) : theirs);
        member.isFixed = true;
        this.#tell(member);
        try {
          return await (other ? other.atFixedRate(atRate) : atRate(0));
        } finally {
          member.isFixed = false;
        }
      },
      leave: () => {
        if (!this.#members.delete(member)) return;
        other?.leave();
        own.leave();
        this.#forget();
      },
    };
  }

  #enter(target: LatencyTarget): Watched {
    const { id } = target.pool;
    const watched = this.#watched.get(id) ?? {
      target,
      control: BEGINNING,
      readBytes: 0,
      counters: new Map(),
      text: '',
    };
    watched.target = target;
    this.#watched.set(id, watched);
    return watched;
  }

  #forget(): void {
    const used = new Set([...this.#members].flatMap(({ watched }) => watched));
    for (const [id, watched] of this.#watched) if (!used.has(watched)) this.#watched.delete(id);
    if (this.#members.size > 0) return;
    this.#ending.abort();
    this.#ending = new AbortController();
  }

  async #sample(): Promise<void> {
    const { signal } = this.#ending;
    this.#sampledMs = this.#clock.nowMs();
    while (!signal.aborted) {
      this.#asking ??= this.#ask().finally(() => {
        this.#asking = undefined;
      });
      const answered = new AbortController();
      const patience = this.#clock.sleep(STALE_MS, AbortSignal.any([signal, answered.signal]));
      await Promise.race([this.#asking, patience]);
      answered.abort();
      if (!signal.aborted && this.#clock.nowMs() - this.#sampledMs >= STALE_MS) this.#passUnknown();
      await this.#clock.sleep(SAMPLE_MS, signal);
    }
  }

  async #ask(): Promise<void> {
    try {
      const found = await this.#options.counters(this.#places);
      const nowMs = this.#clock.nowMs();
      this.#isUnknown = false;
      this.#judge(found, (nowMs - this.#sampledMs) / 1000);
      this.#sampledMs = nowMs;
    } catch (error) {
      this.#options.log.debug('the waits of VMs for their disks are not known', { reason: reasonOf(error) });
    }
  }

  /** Nothing keeps backups slow that nobody sees. */
  #passUnknown(): void {
    if (!this.#isUnknown)
      this.#options.log.warn('how long VMs wait for their disks is not known: backups do not give way', {
        pools: this.pools,
      });
    this.#isUnknown = true;
    for (const watched of this.#watched.values()) {
      watched.counters = new Map();
      this.#move(watched, FREE, '');
    }
    for (const member of this.#members) this.#tell(member);
  }

  #judge(found: CountersByPool, seconds: number): void {
    for (const [id, watched] of this.#watched) {
      const now = found.get(id) ?? new Map<string, DiskCounters>();
      const waitsMs = averageWaits(watched.counters, now);
      // one that something is being done with is left out of a sample
      watched.counters = new Map([...watched.counters, ...now]);
      const throughput = seconds > 0 ? watched.readBytes / seconds : 0;
      watched.readBytes = 0;
      const { pool, targetMs } = watched.target;
      const control = nextControl(watched.control, { throughput, waitsMs, targetMs });
      const binds = !isClimbing(control) && control.rate < UNBOUNDED && control.rate < BINDS * throughput;
      const text = `Reading at most ${Math.round(control.rate / MiB)} MiB/s: VMs wait ${(longestOf(waitsMs) ?? 0).toFixed(1)} ms for disks of ${pool.name}, whose target is ${targetMs} ms.`;
      this.#move(watched, control, binds ? text : '');
    }
    for (const member of this.#members) this.#tell(member);
  }

  #move(watched: Watched, control: Control, text: string): void {
    if (control.rate !== watched.control.rate) this.#limits.change(watched.target.pool.id, control.rate);
    watched.control = control;
    watched.text = text;
  }

  /** Of the pool that slows it most. */
  #tell(member: Member): void {
    const slowest = member.watched.toSorted((a, b) => a.control.rate - b.control.rate)[0];
    const text = member.isFixed ? '' : (slowest?.text ?? '');
    if (text === member.text) return;
    member.text = text;
    member.say(text);
  }
}
