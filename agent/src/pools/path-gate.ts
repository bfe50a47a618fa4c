/**
 * Lets at most one piece of file work per key into the thread pool, and stops waiting for it after a while: a call on a
 * hung network file system never returns, and four of them stop all file work of the agent. While a key hangs, further
 * work on it is refused at once.
 */
export class PathGate {
  readonly #waitMs: number;
  readonly #running = new Map<string, Promise<unknown>>();
  readonly #hung = new Set<string>();

  constructor(waitMs = 5_000) {
    this.#waitMs = waitMs;
  }

  /** Runs the work after the one before it; undefined when the key hangs. Rejects as the work does. */
  async run<T>(key: string, work: () => Promise<T>): Promise<T | undefined> {
    while (this.#running.has(key)) {
      if (this.#hung.has(key)) return undefined;
      await this.#bounded(
        key,
        this.#running.get(key)!.catch(() => {}),
      );
    }
    const running = work().finally(() => {
      this.#running.delete(key);
      this.#hung.delete(key);
    });
    this.#running.set(key, running);
    return this.#bounded(key, running);
  }

  async #bounded<T>(key: string, running: Promise<T>): Promise<T | undefined> {
    const { promise: late, resolve } = Promise.withResolvers<undefined>();
    const timer = setTimeout(() => {
      // it may have ended while this timer was on its way
      if (this.#running.has(key)) this.#hung.add(key);
      resolve(undefined);
    }, this.#waitMs);
    try {
      return await Promise.race([running, late]);
    } finally {
      // not by a signal: its errors, with the places where they arose, were an eighth of what a look at all VMs costs
      clearTimeout(timer);
    }
  }
}
