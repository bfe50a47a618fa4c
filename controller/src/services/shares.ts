import { VirtkeepError } from '@virtkeep/shared/errors';
import { KeyedCount } from '@virtkeep/shared/keyed-count';

const RETRY_AFTER_S = 30;

export interface ShareLimits {
  all: number;
  perUser: number;
}

/** Places that are few: at most so many for all, and for each user, so that one does not take those of the others. */
export class Shares {
  readonly #limits: () => ShareLimits;
  readonly #taken = new KeyedCount();

  constructor(limits: () => ShareLimits) {
    this.#limits = limits;
  }

  /** Takes a place. @returns what gives it back; harmless when repeated. @throws too_many_requests when there is none. */
  take(userId: string): () => void {
    const { all, perUser } = this.#limits();
    if (this.#taken.total >= all || this.#taken.of(userId) >= perUser) {
      throw new VirtkeepError('too_many_requests', { seconds: RETRY_AFTER_S });
    }
    return this.#taken.add(userId);
  }
}
