import { setImmediate } from 'node:timers/promises';

/** How long work may keep the event loop, ms: a tenth of what an answer may take. */
const TURN_MS = 5;

/**
 * Shares the event loop between work on many things in a row and everybody else. Such work only seems to wait: a database in
 * the process answers at once, and so do the items of a stream that have come together.
 */
export class Turns {
  #sinceMs = performance.now();

  /** To be waited for between two things; lets the others have a turn when ours has taken long enough. */
  async share(): Promise<void> {
    if (performance.now() - this.#sinceMs < TURN_MS) return;
    await setImmediate();
    this.#sinceMs = performance.now();
  }
}
