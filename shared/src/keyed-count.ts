/** How many there are of each key at present; what has none takes no room. */
export class KeyedCount {
  readonly #counts = new Map<string, number>();
  #total = 0;

  get total(): number {
    return this.#total;
  }

  of(key: string): number {
    return this.#counts.get(key) ?? 0;
  }

  /** Those of which there is any. */
  keys(): Iterable<string> {
    return this.#counts.keys();
  }

  /** Counts one more. @returns what takes it back; harmless when repeated. */
  add(key: string): () => void {
    this.#change(key, 1);
    let isCounted = true;
    return () => {
      if (isCounted) this.#change(key, -1);
      isCounted = false;
    };
  }

  #change(key: string, by: 1 | -1): void {
    const next = this.of(key) + by;
    this.#total += by;
    if (next === 0) this.#counts.delete(key);
    else this.#counts.set(key, next);
  }
}
