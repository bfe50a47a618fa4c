/** What is done for runs behind the back of what asked for it, and which of them something failed for. */
import type { Logger } from '@virtkeep/shared/log';

export class Behind {
  /**
   * Runs of which no word may come any more: something failed for them, or a part of theirs waits for a node that is away or does not say. The
   * next tick looks after them.
   */
  readonly troubled = new Set<string>();
  readonly #pending = new Set<Promise<void>>();
  readonly #draining: AbortSignal;
  readonly #log: Logger;
  #stopped = false;

  /** @param draining fires when nothing is to begin any more */
  constructor(draining: AbortSignal, log: Logger) {
    this.#draining = draining;
    this.#log = log;
  }

  get isStopping(): boolean {
    return this.#stopped || this.#draining.aborted;
  }

  /** No work is taken any more. */
  stop(): void {
    this.#stopped = true;
  }

  /** Work that nobody waits for but the end of the controller, and tests. */
  run(what: string, runId: string, work: () => Promise<void>): void {
    if (this.#stopped) return;
    const done: Promise<void> = work()
      .catch((error: unknown) => {
        this.#log.error(`could not ${what} a run`, { run: runId, error });
        this.troubled.add(runId);
      })
      .finally(() => this.#pending.delete(done));
    this.#pending.add(done);
  }

  /** All of it is done, and what came of it. */
  async settled(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending);
  }
}
