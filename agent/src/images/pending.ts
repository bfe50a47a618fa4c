/**
 * Files that the clean-up of an operation did not remove. A file in use is reported once. When another node gives no answer,
 * the question is repeated, but not for ever: a node may be away for weeks, and the operation's locks are held meanwhile.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { LeftImage } from './remove.ts';

/** How long to wait for an answer, ms; the count begins again when the agent starts. */
export const PATIENCE_MS = 15 * 60_000;

export class PendingAnswers {
  readonly #patienceMs: number;
  /** Path → time of the first question about it, ms of performance.now(). */
  readonly #askedAtMs = new Map<string, number>();

  constructor(patienceMs = PATIENCE_MS) {
    this.#patienceMs = patienceMs;
  }

  /**
   * Warns of files that stay.
   * @throws VirtkeepError image_use_unknown while an answer may still come; then nothing was told
   */
  settle(left: readonly LeftImage[], warn: (text: string) => void): void {
    const nowMs = performance.now();
    const unknown = left.filter(({ why }) => why === 'unknown');
    for (const { path } of unknown) if (!this.#askedAtMs.has(path)) this.#askedAtMs.set(path, nowMs);
    // about all of them the question is the same time old
    const open = unknown.find(({ path }) => nowMs - this.#askedAtMs.get(path)! < this.#patienceMs);
    if (open) throw new VirtkeepError('image_use_unknown', { path: open.path, reason: open.reason });
    for (const { path, text } of left) {
      this.#askedAtMs.delete(path);
      warn(text);
    }
  }
}
