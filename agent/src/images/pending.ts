/**
 * Files that were not removed, in the clean-up of an operation. Who uses one is told once and for all. What no other node has
 * answered is asked again, but not for ever: a node may be away for weeks, and the operation's locks are held meanwhile.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { LeftImage } from './remove.ts';

/** So long an answer is waited for, ms, counted anew when the agent starts. */
const PATIENCE_MS = 15 * 60_000;

export class PendingAnswers {
  readonly #patienceMs: number;
  /** Path → when it was first asked for, ms of performance.now(). */
  readonly #askedMs = new Map<string, number>();

  constructor(patienceMs = PATIENCE_MS) {
    this.#patienceMs = patienceMs;
  }

  /**
   * Tells of files that stay.
   * @throws VirtkeepError image_use_unknown while an answer may still come; then nothing was told
   */
  settle(left: readonly LeftImage[], warn: (text: string) => void): void {
    const nowMs = performance.now();
    for (const { path, why, reason } of left) {
      if (why !== 'unknown') continue;
      const askedMs = this.#askedMs.get(path) ?? nowMs;
      this.#askedMs.set(path, askedMs);
      if (nowMs - askedMs < this.#patienceMs) throw new VirtkeepError('image_use_unknown', { path, reason });
    }
    for (const { path, text } of left) {
      this.#askedMs.delete(path);
      warn(text);
    }
  }
}
