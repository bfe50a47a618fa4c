/** What is remembered for a while, in memory alone, and bounded: when there is too much, the oldest goes first. */

export interface ExpiringMapOptions<V> {
  lifeMs: number;
  maxEntries: number;
  /** Bound of what all entries weigh together; an entry that weighs more alone is not kept. */
  weight?: { of: (value: V) => number; max: number };
  /** A clock that is not set back, which would lengthen lives. */
  nowMs?: () => number;
}

interface Entry<V> {
  value: V;
  atMs: number;
  weight: number;
}

export class ExpiringMap<V> {
  readonly #options: ExpiringMapOptions<V>;
  readonly #nowMs: () => number;
  /** The oldest first, which is the order in which they expire. */
  readonly #entries = new Map<string, Entry<V>>();
  #weight = 0;

  constructor(options: ExpiringMapOptions<V>) {
    this.#options = options;
    this.#nowMs = options.nowMs ?? (() => performance.now());
  }

  /** Its life begins anew, also when the key was there. */
  set(key: string, value: V): void {
    this.delete(key);
    const weight = this.#options.weight?.of(value) ?? 0;
    this.#entries.set(key, { value, atMs: this.#nowMs(), weight });
    this.#weight += weight;
    this.#clean();
  }

  /** Undefined when it was never there, or no longer is. Being asked for does not lengthen a life. */
  get(key: string): V | undefined {
    this.#clean();
    return this.#entries.get(key)?.value;
  }

  delete(key: string): void {
    this.#weight -= this.#entries.get(key)?.weight ?? 0;
    this.#entries.delete(key);
  }

  #clean(): void {
    const { lifeMs, maxEntries, weight } = this.#options;
    const nowMs = this.#nowMs();
    for (const [key, { atMs }] of this.#entries) {
      const isTooMuch = this.#entries.size > maxEntries || (weight && this.#weight > weight.max);
      if (!isTooMuch && nowMs - atMs < lifeMs) return;
      this.delete(key);
    }
  }
}
