/**
 * How many may do something at a time. Who takes long gives its place up and goes on all the same: a thousand nodes that do not answer must
 * not keep those waiting that would. So must not those that gave no answer before: they have half of the places at most, and come after the
 * others.
 */
export interface PlacesOptions {
  count: number;
  /** After so long the place is somebody else's. */
  holdMs: number;
}

interface Waiter {
  isDoubtful: boolean;
  begin: () => void;
}

export class Places {
  readonly #options: PlacesOptions;
  readonly #waiting: Waiter[] = [];
  readonly #doubtful: Waiter[] = [];
  #taken = 0;
  #takenByDoubtful = 0;

  constructor(options: PlacesOptions) {
    this.#options = options;
  }

  /**
   * Waits for a place.
   * @param isDoubtful it gave no answer the last time
   * @returns what frees it, once or more often
   * @throws the signal's reason when it fires before
   */
  async take(isDoubtful: boolean, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const turn = Promise.withResolvers<void>();
    const waiter = { isDoubtful, begin: turn.resolve };
    const row = isDoubtful ? this.#doubtful : this.#waiting;
    const leave = () => {
      const at = row.indexOf(waiter);
      if (at < 0) return;
      row.splice(at, 1);
      turn.reject(signal.reason);
    };
    row.push(waiter);
    signal.addEventListener('abort', leave, { once: true });
    this.#next();
    try {
      await turn.promise;
    } finally {
      signal.removeEventListener('abort', leave);
    }
    return this.#held(isDoubtful);
  }

  #held(isDoubtful: boolean): () => void {
    let isHeld = true;
    const free = () => {
      clearTimeout(timer);
      if (!isHeld) return;
      isHeld = false;
      this.#taken -= 1;
      if (isDoubtful) this.#takenByDoubtful -= 1;
      this.#next();
    };
    const timer = setTimeout(free, this.#options.holdMs);
    timer.unref();
    return free;
  }

  #next(): void {
    const { count } = this.#options;
    while (this.#taken < count) {
      const mayDoubtful = this.#takenByDoubtful < Math.ceil(count / 2);
      const waiter = this.#waiting.shift() ?? (mayDoubtful ? this.#doubtful.shift() : undefined);
      if (!waiter) return;
      this.#taken += 1;
      if (waiter.isDoubtful) this.#takenByDoubtful += 1;
      waiter.begin();
    }
  }
}
