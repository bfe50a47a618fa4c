/**
 * Guests that were frozen by hand. A freeze that lasts longer than the limit is thawed, by the next agent when this one was
 * killed. The freeze of a backup is no freeze by hand: libvirt begins and ends it within one call, and the journal of that
 * operation makes sure of its end.
 */
import type { Domain } from '@virtkeep/node-libvirt';
import { reasonOf } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { MAX_TIMER_MS } from '@virtkeep/shared/once-at';
import { ensureThawed } from './agent.ts';
import type { GuestRecords } from './records.ts';

export interface FreezeWatchDependencies {
  /** @throws VirtkeepError libvirt_unreachable */
  domain(id: string): Domain;
  records: GuestRecords;
  log: Logger;
  limitMs: number;
  /** An operation works on the domain's disks, and may have it frozen itself for a moment. */
  isHeld(domainId: string): boolean;
  /** Called when a guest counts as frozen, or does not any more. */
  changed(): void;
}

/** How long one attempt to thaw may take; then the next one begins. */
const THAW_MS = 60_000;
const RETRY_MS = 5_000;
/** How old the last look at a domain may be. */
const SEEN_LATE_MS = 30_000;
/** An operation freezes a guest for seconds; what lasts longer is not its freeze. */
const MAX_HELD_MS = 120_000;

export class FreezeWatch {
  readonly #dependencies: FreezeWatchDependencies;
  /** When a guest was frozen or thawed by hand last, by performance.now(): an answer to an earlier question does not count. */
  readonly #changedMs = new Map<string, number>();
  readonly #timers = new Map<string, NodeJS.Timeout>();
  readonly #stopping = new AbortController();

  constructor(dependencies: FreezeWatchDependencies) {
    this.#dependencies = dependencies;
  }

  /** Goes on with the freezes that an agent before this one noted. */
  start(): void {
    for (const [id, sinceMs] of Object.entries(this.#dependencies.records.frozen())) this.#plan(id, sinceMs);
  }

  stop(): void {
    this.#stopping.abort();
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }

  /** Since when the guest is frozen by hand; undefined: it is not. */
  since(domainId: string): Date | undefined {
    const sinceMs = this.#dependencies.records.frozen()[domainId];
    return sinceMs === undefined ? undefined : new Date(sinceMs);
  }

  /** The guest is about to be frozen by hand, or was found frozen. That is durable when this returns. */
  frozen(domainId: string): void {
    const { records, changed } = this.#dependencies;
    this.#changedMs.set(domainId, performance.now());
    if (records.frozen()[domainId] !== undefined) return;
    const sinceMs = Date.now();
    records.setFrozen(domainId, sinceMs);
    this.#plan(domainId, sinceMs);
    changed();
  }

  /** When that cannot be noted now, the guest stays on the list as frozen, and the end is noted after the limit. */
  thawed(domainId: string): void {
    const { records, changed, log } = this.#dependencies;
    if (records.frozen()[domainId] === undefined) return;
    this.#changedMs.set(domainId, performance.now());
    try {
      records.setFrozen(domainId, undefined);
    } catch (error) {
      log.error('the end of a freeze cannot be noted yet', { domain: domainId, reason: reasonOf(error) });
      this.#at(domainId, Math.max(RETRY_MS, this.#leftMs(domainId)));
      return;
    }
    clearTimeout(this.#timers.get(domainId));
    this.#timers.delete(domainId);
    changed();
  }

  /** The domain was seen off. A domain that was started and frozen since then is left alone. */
  off(domainId: string): void {
    const sinceMs = this.#dependencies.records.frozen()[domainId];
    if (sinceMs !== undefined && Date.now() - sinceMs > SEEN_LATE_MS) this.thawed(domainId);
  }

  /**
   * The guest has answered whether it is frozen. A freeze by an operation belongs to that operation, and is ignored here.
   * @param askedAtMs time of the question, by performance.now()
   */
  seen(domainId: string, isFrozen: boolean, askedAtMs: number): void {
    if (askedAtMs <= (this.#changedMs.get(domainId) ?? 0)) return;
    if (!isFrozen) this.thawed(domainId);
    else if (!this.#dependencies.isHeld(domainId)) this.frozen(domainId);
  }

  #plan(domainId: string, sinceMs: number): void {
    this.#at(domainId, sinceMs + this.#dependencies.limitMs - Date.now());
  }

  /** Until the limit. */
  #leftMs(domainId: string): number {
    const { records, limitMs } = this.#dependencies;
    return (records.frozen()[domainId] ?? 0) + limitMs - Date.now();
  }

  #at(domainId: string, delayMs: number): void {
    if (this.#stopping.signal.aborted) return;
    clearTimeout(this.#timers.get(domainId));
    const timer = setTimeout(() => void this.#expire(domainId), Math.min(Math.max(0, delayMs), MAX_TIMER_MS));
    this.#timers.set(domainId, timer);
  }

  async #expire(domainId: string): Promise<void> {
    const { domain, records, log, isHeld } = this.#dependencies;
    const sinceMs = records.frozen()[domainId];
    if (sinceMs === undefined) return;
    const overMs = -this.#leftMs(domainId);
    if (overMs < 0) return this.#at(domainId, -overMs);
    if (isHeld(domainId) && overMs < MAX_HELD_MS) return this.#at(domainId, RETRY_MS);
    try {
      const limit = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(THAW_MS)]);
      await ensureThawed(domain(domainId), limit, log);
      log.warn('a guest that was frozen by hand was thawed after the limit', {
        domain: domainId,
        since: new Date(sinceMs).toISOString(),
      });
      this.thawed(domainId);
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      log.warn('a guest that was frozen by hand cannot be thawed yet', {
        domain: domainId,
        reason: reasonOf(error),
      });
      this.#at(domainId, RETRY_MS);
    }
  }
}
