/** Runs work on the same key one after another, in the order it came; different keys do not wait for each other. */
export class KeyedQueue {
  readonly #tails = new Map<string, Promise<unknown>>();

  run<T>(key: string, work: () => Promise<T>): Promise<T> {
    return this.runAll([key], work);
  }

  /**
   * Work on several keys at once. It takes its place behind what came before on each of them, on all in the same moment: so two that
   * share several keys cannot wait for each other.
   */
  async runAll<T>(keys: readonly string[], work: () => Promise<T>): Promise<T> {
    const before = Promise.all(keys.map(key => this.#tails.get(key) ?? Promise.resolve()));
    const turn = before.then(work);
    const tail = turn.catch(() => {});
    for (const key of keys) this.#tails.set(key, tail);
    try {
      return await turn;
    } finally {
      for (const key of keys) if (this.#tails.get(key) === tail) this.#tails.delete(key);
    }
  }
}
