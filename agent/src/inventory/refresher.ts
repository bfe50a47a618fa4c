import { sleep } from '@virtkeep/shared/abort';
import type { Logger } from '@virtkeep/shared/log';

/**
 * Runs the work of each key a little after it was asked for, never twice at a time: what is asked for while it runs makes
 * one further run. So a storm of events costs two looks.
 */
export class Refresher {
  readonly #settleMs: number;
  readonly #work: (key: string) => Promise<void>;
  readonly #log: Logger;
  readonly #stopping = new AbortController();
  /** Keys at work; true when asked for again meanwhile. */
  readonly #active = new Map<string, boolean>();
  readonly #running = new Set<Promise<void>>();

  constructor(settleMs: number, work: (key: string) => Promise<void>, log: Logger) {
    this.#settleMs = settleMs;
    this.#work = work;
    this.#log = log;
  }

  request(key: string): void {
    if (this.#stopping.signal.aborted) return;
    if (this.#active.has(key)) {
      this.#active.set(key, true);
      return;
    }
    this.#active.set(key, true);
    const running = this.#run(key);
    this.#running.add(running);
    void running.finally(() => this.#running.delete(running));
  }

  /** Takes no more requests and waits for the end of the work that runs. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#running);
  }

  async #run(key: string): Promise<void> {
    const { signal } = this.#stopping;
    try {
      while (this.#active.get(key) && !signal.aborted) {
        await sleep(this.#settleMs, signal);
        this.#active.set(key, false);
        await this.#work(key);
      }
    } catch (error) {
      if (!signal.aborted) this.#log.error('a refresh failed', { key, error });
    } finally {
      this.#active.delete(key);
    }
  }
}
