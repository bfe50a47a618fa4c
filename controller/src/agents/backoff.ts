/** Waiting times between attempts: doubling, bounded, with jitter so that many nodes do not come in step. */
export class Backoff {
  readonly #firstMs: number;
  readonly #maxMs: number;
  readonly #random: () => number;
  #nextMs: number;

  constructor(firstMs: number, maxMs: number, random: () => number = Math.random) {
    this.#firstMs = firstMs;
    this.#maxMs = maxMs;
    this.#random = random;
    this.#nextMs = firstMs;
  }

  /** The next delay in ms: between 75 % and 125 % of the doubling series, at most 125 % of the bound. */
  next(): number {
    const delayMs = this.#nextMs * (0.75 + this.#random() / 2);
    this.#nextMs = Math.min(this.#nextMs * 2, this.#maxMs);
    return delayMs;
  }

  reset(): void {
    this.#nextMs = this.#firstMs;
  }
}
