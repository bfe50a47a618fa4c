/**
 * Limits of what backups read, shared by all operations of this node that name the same key: a bucket of tokens each, which fills at the
 * rate that was told last and is gone when nobody uses it. Work that keeps to a rate by itself (`atFixedRate`) takes no tokens: the bucket
 * fills more slowly for as long as it lasts.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Throttle } from '../archive/index.ts';

export interface BandwidthLimit {
  key: string;
  bytesPerSecond: number;
}

/** The time, for tests. */
export interface LimitClock {
  nowMs(): number;
  sleep(ms: number, signal: AbortSignal): Promise<void>;
}

/** The time as it is. */
export const SYSTEM_CLOCK: LimitClock = {
  nowMs: () => performance.now(),
  sleep: async (ms, signal) => {
    await delay(ms, undefined, { signal }).catch(() => {});
  },
};

/** A bucket is full after so long: what was not read for longer is not made up for. */
const BURST_MS = 100;
/** Tokens are taken in pieces of this time, so that many users take turns and another rate holds soon. */
const PIECE_MS = 100;

interface Bucket {
  bytesPerSecond: number;
  users: number;
  /** Of the rate, 0 to less than 1: what work at a fixed rate has of it. */
  promised: number;
  /** When all that was taken has flowed in. */
  paidMs: number;
}

/** What an operation reads by. */
export interface JoinedLimits extends Throttle {
  /** Harmless when repeated. */
  leave(): void;
}

export class BandwidthLimits {
  readonly #buckets = new Map<string, Bucket>();
  readonly #clock: LimitClock;

  constructor(clock = SYSTEM_CLOCK) {
    this.#clock = clock;
  }

  /** Keys in use. */
  get keys(): string[] {
    return [...this.#buckets.keys()];
  }

  /** An operation reads by these limits from now on, and others that name the same keys by these rates. */
  join(limits: readonly BandwidthLimit[]): JoinedLimits {
    const rates = new Map(limits.map(({ key, bytesPerSecond }) => [key, bytesPerSecond]));
    for (const [key, bytesPerSecond] of rates) this.#enter(key, bytesPerSecond);
    let hasLeft = false;
    const buckets = [...rates.keys()].map(key => this.#buckets.get(key)!);
    return {
      take: (bytes, signal) => this.#take(buckets, bytes, signal),
      atFixedRate: work => this.#atFixedRate(buckets, work),
      leave: () => {
        if (hasLeft) return;
        hasLeft = true;
        for (const key of rates.keys()) this.#leave(key);
      },
    };
  }

  /** Another rate for who uses the key; nothing when nobody does. */
  change(key: string, bytesPerSecond: number): void {
    const bucket = this.#buckets.get(key);
    if (bucket) bucket.bytesPerSecond = bytesPerSecond;
  }

  #enter(key: string, bytesPerSecond: number): void {
    const bucket = this.#buckets.get(key);
    if (bucket) Object.assign(bucket, { bytesPerSecond, users: bucket.users + 1 });
    else this.#buckets.set(key, { bytesPerSecond, users: 1, promised: 0, paidMs: this.#clock.nowMs() });
  }

  #leave(key: string): void {
    const bucket = this.#buckets.get(key)!;
    bucket.users -= 1;
    if (bucket.users === 0) this.#buckets.delete(key);
  }

  async #take(buckets: readonly Bucket[], bytes: number, signal: AbortSignal): Promise<void> {
    for (let left = bytes; left > 0 && buckets.length > 0 && !signal.aborted; ) {
      const slowest = Math.min(...buckets.map(freeRate));
      const piece = Math.min(left, Math.max(1, (slowest * PIECE_MS) / 1000));
      const waitMs = Math.max(...buckets.map(bucket => this.#waitMs(bucket, piece)));
      if (waitMs > 0) await this.#clock.sleep(waitMs, signal);
      left -= piece;
    }
  }

  /** Takes tokens that may still have to flow in. */
  #waitMs(bucket: Bucket, bytes: number): number {
    const now = this.#clock.nowMs();
    bucket.paidMs = Math.max(bucket.paidMs, now - BURST_MS) + (bytes * 1000) / freeRate(bucket);
    return bucket.paidMs - now;
  }

  /** At most half of what is free: the rate can neither be raised nor lowered later, and whoever comes meanwhile must get on. */
  async #atFixedRate<T>(
    buckets: readonly Bucket[],
    work: (bytesPerSecond: number) => Promise<T>,
  ): Promise<T> {
    if (buckets.length === 0) return work(0);
    const rate = Math.min(...buckets.map(freeRate)) / 2;
    const promises = buckets.map(bucket => ({ bucket, share: rate / bucket.bytesPerSecond }));
    for (const { bucket, share } of promises) bucket.promised += share;
    try {
      return await work(Math.max(1, Math.floor(rate)));
    } finally {
      for (const { bucket, share } of promises) bucket.promised -= share;
    }
  }
}

/** Bytes per second that nobody was promised. */
const freeRate = ({ bytesPerSecond, promised }: Bucket): number => bytesPerSecond * (1 - promised);
