/**
 * When an instant that could not go is tried again. A try holds its owner, so the time between two of them doubles as long as nothing
 * happens after which it may go. Pure: the time is given.
 */

/** Where an answer of another node may be what it needs. */
export interface ReleaseMoment {
  /** By a clock that never goes back, ms. */
  nowMs: number;
  /** Not all nodes were heard that may read the instant. */
  isUnheard: boolean;
}

interface Try {
  againAtMs: number;
  /** Between this try and the next one, ms. */
  delayMs: number;
  wasUnheard: boolean;
}

export class ReleaseTries {
  readonly #firstMs: number;
  readonly #mostMs: number;
  readonly #tries = new Map<string, Try>();

  /**
   * @param firstMs between the first two tries, ms
   * @param mostMs between two at most, ms
   */
  constructor(firstMs: number, mostMs: number) {
    this.#firstMs = firstMs;
    this.#mostMs = mostMs;
  }

  isDue(ownerId: string, { nowMs, isUnheard }: ReleaseMoment): boolean {
    const last = this.#tries.get(ownerId);
    return !last || nowMs >= last.againAtMs || (last.wasUnheard && !isUnheard);
  }

  /** It is tried now. */
  tried(ownerId: string, { nowMs, isUnheard }: ReleaseMoment): void {
    const last = this.#tries.get(ownerId);
    const delayMs = last ? Math.min(2 * last.delayMs, this.#mostMs) : this.#firstMs;
    this.#tries.set(ownerId, { againAtMs: nowMs + delayMs, delayMs, wasUnheard: isUnheard });
  }

  /** Something happened to it: the next try is at once, and what comes after it begins anew. */
  forget(ownerId: string): void {
    this.#tries.delete(ownerId);
  }

  forgetAll(): void {
    this.#tries.clear();
  }

  /** All others need no try any more. */
  keepOnly(ownerIds: ReadonlySet<string>): void {
    for (const ownerId of this.#tries.keys()) if (!ownerIds.has(ownerId)) this.#tries.delete(ownerId);
  }
}
