/**
 * Who acts, of several controllers with one database. Nobody's clock is believed: one that stands by takes the lease over when it has
 * seen, for `takeAfterMs` by its own steady clock, that it was not renewed; one that acts ends itself when its last renewal was sent more
 * than `holdMs` ago by its own. The second is shorter, so both at once can only be when a process does not run at all; what such a one does
 * when it goes on is refused: by the database (`LeaseTable.endConnectionsOfOthers`) and by the nodes (`shared/src/epoch.ts`).
 */
import { setTimeout as pause } from 'node:timers/promises';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import type { Acting } from '../agents/acting.ts';
import type { Candidate, LeaseRow, LeaseTable } from '../store/lease-table.ts';

export interface LeaseTimes {
  lookMs: number;
  renewMs: number;
  holdMs: number;
  takeAfterMs: number;
}

/** One controller takes over from another once in seconds at most; a node cannot make the number unusable. */
const FARTHEST = 1_000_000;

/** @param leaseMs after which one that does not answer counts as gone */
export const leaseTimes = (leaseMs: number): LeaseTimes => ({
  lookMs: leaseMs / 30,
  renewMs: leaseMs / 10,
  holdMs: leaseMs * 0.8,
  takeAfterMs: leaseMs,
});

/**
 * Waits until this controller may act, and nobody else does any more.
 * @param seen is told the row each time it was looked at; undefined when it could not be
 * @returns undefined when the signal fires before
 */
export async function takeLease(
  { table, candidate, log, times, clock }: LeaseDependencies,
  seen: (row: LeaseRow | undefined) => void,
  signal: AbortSignal,
): Promise<TakenLease | undefined> {
  let last: { row: LeaseRow; sinceMs: number } | undefined;
  while (!signal.aborted) {
    try {
      const row = await table.read();
      seen(row);
      const isSame = last?.row.epoch === row.epoch && last.row.beat === row.beat;
      if (!last || !isSame) last = { row, sinceMs: clock.now() };
      const isClaimed = row.claim === candidate.holder;
      const isFree =
        (row.holder === null && (row.claim === null || isClaimed)) ||
        clock.now() - last.sinceMs >= times.takeAfterMs;
      const takenMs = clock.now();
      const epoch = isFree && !signal.aborted ? await table.take(candidate, row) : undefined;
      if (epoch !== undefined) {
        log.info('this controller takes over', { epoch, from: row.name });
        return { epoch, takenMs, isClaimed };
      }
    } catch (error) {
      seen(undefined);
      log.warn('whose turn it is cannot be seen', { reason: reasonOf(error) });
    }
    await clock.pause(times.lookMs, signal);
  }
  return undefined;
}

/** Goes on evenly, whatever the time of day is put to, and while the process is stopped. In ms. */
export interface SteadyClock {
  now(): number;
  /** Resolves early when the signal fires. */
  pause(ms: number, signal: AbortSignal): Promise<void>;
}

export const STEADY_CLOCK: SteadyClock = {
  now: () => performance.now(),
  pause: (ms, signal) => pause(ms, undefined, { signal }).catch(() => {}),
};

export interface LeaseDependencies {
  table: LeaseTable;
  candidate: Candidate;
  log: Logger;
  times: LeaseTimes;
  clock: SteadyClock;
}

export interface TakenLease {
  epoch: number;
  /** By the steady clock, before it was asked for. */
  takenMs: number;
  /** The one before has yielded to this one. */
  isClaimed: boolean;
}

export interface HeldLeaseDependencies extends LeaseDependencies {
  /** Ends the process at once. Called once. */
  lost: (reason: string) => void;
}

/** What a controller that acts does about nodes that it does not reach. */
export interface ReachWatch {
  /** As the row of the lease has it. */
  away: () => readonly string[];
  /** Another controller reaches these. Called once. */
  yields: () => void;
}

/** The lease of a controller that acts. */
export class HeldLease implements Acting {
  readonly #dependencies: HeldLeaseDependencies;
  readonly #ended = new AbortController();
  #raising: Promise<void> | undefined;
  #reach: ReachWatch | undefined;
  #isLost = false;
  #epoch: number;
  /** Until then by the steady clock. */
  #untilMs: number;
  #renewing: Promise<void>;

  constructor(dependencies: HeldLeaseDependencies, { epoch, takenMs }: TakenLease) {
    this.#dependencies = dependencies;
    this.#epoch = epoch;
    this.#untilMs = takenMs + dependencies.times.holdMs;
    this.#renewing = this.#keep();
  }

  get epoch(): number {
    return this.#epoch;
  }

  mustAct(): number {
    this.#lookAtClock();
    if (this.#isLost)
      throw new VirtkeepError('controller_superseded', { epoch: String(this.#epoch), highest: '?' });
    return this.#epoch;
  }

  sawHigher(epoch: number): void {
    const { log } = this.#dependencies;
    if (epoch <= this.#epoch || this.#raising) return;
    if (epoch > this.#epoch + FARTHEST) {
      log.error('a node tells of an epoch that cannot be', { epoch });
      return;
    }
    this.#raising = this.#raise(epoch)
      .catch(error => void log.warn('the epoch could not be raised', { reason: reasonOf(error) }))
      .finally(() => {
        this.#raising = undefined;
      });
  }

  /** Tells the others from now on which nodes it does not reach. */
  watchReach(reach: ReachWatch): void {
    this.#reach = reach;
  }

  /** Tells the others where it takes what they forward. */
  async announce(address: string): Promise<void> {
    const { table, candidate, clock } = this.#dependencies;
    await this.#raising;
    const sentMs = clock.now();
    const epoch = this.#epoch;
    if (!(await table.announce(candidate.holder, epoch, address))) {
      // raised meanwhile: it is still ours
      return epoch === this.#epoch ? this.#taken() : this.announce(address);
    }
    this.#untilMs = sentMs + this.#dependencies.times.holdMs;
  }

  /** Those that stand by have looked at the row by then, which takes them a moment. */
  untilSeen(): Promise<void> {
    const { clock, times } = this.#dependencies;
    return clock.pause(2 * times.lookMs, this.#ended.signal);
  }

  /** Lets another one act; nothing may be asked of a node or the database after it. */
  async release(): Promise<void> {
    this.#ended.abort();
    await this.#renewing;
    this.#isLost = true;
    const { table, candidate, log } = this.#dependencies;
    await table.release(candidate.holder, this.#epoch).catch(error => {
      log.warn('the lease was not given back; the others wait until it ends', { reason: reasonOf(error) });
    });
  }

  async #keep(): Promise<void> {
    const { signal } = this.#ended;
    const { clock, times } = this.#dependencies;
    for (;;) {
      await clock.pause(times.renewMs, signal);
      this.#lookAtClock();
      if (signal.aborted || this.#isLost) return;
      await this.#renew();
    }
  }

  async #renew(): Promise<void> {
    const { table, candidate, log, times, clock } = this.#dependencies;
    const sentMs = clock.now();
    const epoch = this.#epoch;
    const answered = new AbortController();
    // an answer that does not come before the end of the lease is waited for no longer than that
    void clock.pause(this.#untilMs - sentMs, answered.signal).then(() => {
      if (!answered.signal.aborted) this.#lookAtClock();
    });
    try {
      const away = this.#reach?.away() ?? [];
      const renewed = await table.renew(candidate.holder, epoch, away);
      if (renewed) this.#untilMs = Math.max(this.#untilMs, sentMs + times.holdMs);
      else if (epoch === this.#epoch) this.#taken();
      if (renewed?.claim != null) this.#yield(away);
    } catch (error) {
      log.warn('the lease was not renewed', { reason: reasonOf(error) });
    } finally {
      answered.abort();
    }
  }

  /** The claim stands until the turn has ended, whatever becomes of the nodes meanwhile. */
  #yield(away: readonly string[]): void {
    const reach = this.#reach;
    this.#reach = { away: () => away, yields: () => {} };
    reach?.yields();
  }

  async #raise(above: number): Promise<void> {
    const { table, candidate, log } = this.#dependencies;
    const epoch = await table.raise(candidate.holder, this.#epoch, above);
    if (epoch === undefined) return this.#taken();
    log.warn('nodes have seen a higher epoch than the database: it was put back from a backup', { epoch });
    this.#epoch = Math.max(this.#epoch, epoch);
  }

  #lookAtClock(): void {
    if (this.#dependencies.clock.now() >= this.#untilMs) this.#lose('the lease was not renewed in time');
  }

  #taken(): void {
    this.#lose('another controller has taken over');
  }

  #lose(reason: string): void {
    if (this.#isLost || this.#ended.signal.aborted) return;
    this.#isLost = true;
    this.#dependencies.lost(reason);
  }
}
