import { abortReason } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';

/** A bounded number of places with a bounded, first-come queue before them. */
export class Slots {
  #free: number;
  readonly #maxQueued: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number, maxQueued: number) {
    this.#free = count;
    this.#maxQueued = maxQueued;
  }

  /** True when `take` would have to wait. */
  get busy(): boolean {
    return this.#free === 0;
  }

  /** @throws VirtkeepError overloaded when the queue is full. */
  assertRoom(): void {
    if (this.busy && this.#waiting.length >= this.#maxQueued) throw new VirtkeepError('overloaded');
  }

  /** Waits for a place; rejects with the abort reason. Every success is followed by one `give`. */
  async take(signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw abortReason(signal);
    if (this.#free > 0) {
      this.#free--;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const onAbort = () => {
        this.#waiting.splice(this.#waiting.indexOf(grant), 1);
        reject(abortReason(signal));
      };
      const grant = () => {
        signal.removeEventListener('abort', onAbort);
        resolve();
      };
      this.#waiting.push(grant);
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  give(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#free++;
  }
}
