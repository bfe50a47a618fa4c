/** Waiting times between attempts: doubling, bounded; with jitter where many would come in step otherwise. */
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

  /** Without jitter: for what nobody else waits for. */
  static steady(firstMs: number, maxMs: number): Backoff {
    return new Backoff(firstMs, maxMs, () => 0.5);
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
