import type { Logger } from './log.ts';

/** One undo step; it gets a fresh signal, because undo must run although the work was cancelled. */
export type Undo = (signal: AbortSignal) => Promise<void>;

/**
 * The undo stack of a workflow: each undo is pushed as soon as its step has succeeded and run in reverse order.
 * A failing undo is logged and does not stop the ones below it; `unwind` reports the failures.
 */
export class CleanupStack {
  #steps: { name: string; undo: Undo; always: boolean }[] = [];
  readonly #log: Logger;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Undo that runs only when the workflow fails. */
  onFailure(name: string, undo: Undo): void {
    this.#steps.push({ name, undo, always: false });
  }

  /** Undo that runs whatever happened (a temporary saved state, a lock). */
  always(name: string, undo: Undo): void {
    this.#steps.push({ name, undo, always: true });
  }

  /**
   * Runs the undo steps, newest first, each at most `stepTimeoutMs`.
   * @returns the failures, newest first; empty when all went well.
   */
  async unwind(failed: boolean, stepTimeoutMs = 600_000): Promise<{ name: string; error: unknown }[]> {
    const failures: { name: string; error: unknown }[] = [];
    for (let step = this.#steps.pop(); step; step = this.#steps.pop()) {
      if (!failed && !step.always) continue;
      try {
        await step.undo(AbortSignal.timeout(stepTimeoutMs));
      } catch (error) {
        this.#log.error('undo step failed', { step: step.name, error });
        failures.push({ name: step.name, error });
      }
    }
    return failures;
  }
}
