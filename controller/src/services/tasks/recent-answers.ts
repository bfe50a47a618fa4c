/** Answers kept in memory for a while, bounded in number and size. */
import { MiB } from '@virtkeep/shared/units';

const KEPT_MS = 600_000;
const MAX_ANSWERS = 1_000;
const MAX_CHARACTERS = 32 * MiB;

export class RecentAnswers {
  readonly #answers = new Map<string, { text: string; atMs: number }>();
  readonly #nowMs: () => number;
  #characters = 0;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  keep(slot: string, text: string): void {
    this.#forget(slot);
    this.#answers.set(slot, { text, atMs: this.#nowMs() });
    this.#characters += text.length;
    this.#clean();
  }

  /** Undefined when it was never kept, or no longer is. */
  find(slot: string): string | undefined {
    this.#clean();
    return this.#answers.get(slot)?.text;
  }

  /** The oldest come first. */
  #clean(): void {
    const oldestMs = this.#nowMs() - KEPT_MS;
    for (const [slot, { atMs }] of this.#answers) {
      const isFull = this.#answers.size > MAX_ANSWERS || this.#characters > MAX_CHARACTERS;
      if (!isFull && atMs >= oldestMs) return;
      this.#forget(slot);
    }
  }

  #forget(slot: string): void {
    this.#characters -= this.#answers.get(slot)?.text.length ?? 0;
    this.#answers.delete(slot);
  }
}
