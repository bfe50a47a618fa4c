/**
 * How often one place may fail in a while. What succeeds does not count: a thousand nodes behind one address enrol one after the other, and
 * who guesses tokens is slowed down all the same.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ExpiringMap } from '@virtkeep/shared/expiring-map';
import type { FastifyRequest } from 'fastify';
import { addressGroup } from '../auth/address-group.ts';

const MAX_PLACES = 10_000;

export class FailureLimit {
  readonly #most: number;
  readonly #windowMs: number;
  readonly #nowMs: () => number;
  /** How often each place has failed, and until when that counts. */
  readonly #failures: ExpiringMap<{ count: number; untilMs: number }>;

  constructor({
    most,
    windowMs,
    nowMs = () => performance.now(),
  }: { most: number; windowMs: number; nowMs?: () => number }) {
    this.#most = most;
    this.#windowMs = windowMs;
    this.#nowMs = nowMs;
    this.#failures = new ExpiringMap({ lifeMs: windowMs, maxEntries: MAX_PLACES, nowMs });
  }

  /** To be asked before the body is read, and again before it is believed: many may be asked at once. @throws too_many_requests. */
  require(request: Pick<FastifyRequest, 'ip'>): void {
    const failed = this.#failures.get(placeOf(request));
    if (!failed || failed.count < this.#most) return;
    const seconds = Math.max(1, Math.ceil((failed.untilMs - this.#nowMs()) / 1000));
    throw new VirtkeepError('too_many_requests', { seconds });
  }

  failed(request: Pick<FastifyRequest, 'ip'>): void {
    const place = placeOf(request);
    const failed = this.#failures.get(place);
    // the window is that of the first one
    if (failed) failed.count += 1;
    else this.#failures.set(place, { count: 1, untilMs: this.#nowMs() + this.#windowMs });
  }
}

/** A socket that is gone already has no address. */
const placeOf = ({ ip }: Pick<FastifyRequest, 'ip'>): string => addressGroup(ip ?? '');
