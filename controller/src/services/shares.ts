import { VirtkeepError } from '@virtkeep/shared/errors';

const RETRY_AFTER_S = 30;

export interface ShareLimits {
  all: number;
  perUser: number;
}

/** Places that are few: at most so many for all, and for each user, so that one does not take those of the others. */
export class Shares {
  readonly #limits: () => ShareLimits;
  readonly #taken = new Map<string, number>();
  #all = 0;

  constructor(limits: () => ShareLimits) {
    this.#limits = limits;
  }

  /** Takes a place. @returns what gives it back; harmless when repeated. @throws too_many_requests when there is none. */
  take(userId: string): () => void {
    const { all, perUser } = this.#limits();
    const own = this.#taken.get(userId) ?? 0;
    if (this.#all >= all || own >= perUser) {
      throw new VirtkeepError('too_many_requests', { seconds: RETRY_AFTER_S });
    }
    this.#all += 1;
    this.#taken.set(userId, own + 1);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#all -= 1;
      const left = this.#taken.get(userId)! - 1;
      if (left === 0) this.#taken.delete(userId);
      else this.#taken.set(userId, left);
    };
  }
}
