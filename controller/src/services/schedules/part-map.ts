/** Parts by their key, and by their run: of ten thousand that wait, those of one run are found at once. */
import type { PlacedPart } from './open-parts.ts';

export class PartMap {
  readonly #parts = new Map<string, PlacedPart>();
  readonly #keysOfRun = new Map<string, Set<string>>();

  get size(): number {
    return this.#parts.size;
  }

  get(key: string): PlacedPart | undefined {
    return this.#parts.get(key);
  }

  has(key: string): boolean {
    return this.#parts.has(key);
  }

  entries(): Iterable<[string, PlacedPart]> {
    return this.#parts.entries();
  }

  values(): Iterable<PlacedPart> {
    return this.#parts.values();
  }

  /** Those that there are now; they may go meanwhile. */
  keysOf(runId: string): string[] {
    return [...(this.#keysOfRun.get(runId) ?? [])];
  }

  set(part: PlacedPart): void {
    const { key } = part.queued;
    this.#parts.set(key, part);
    const keys = this.#keysOfRun.get(part.row.run_id);
    if (keys) keys.add(key);
    else this.#keysOfRun.set(part.row.run_id, new Set([key]));
  }

  delete(key: string): void {
    const part = this.#parts.get(key);
    if (!part) return;
    this.#parts.delete(key);
    const keys = this.#keysOfRun.get(part.row.run_id)!;
    keys.delete(key);
    if (keys.size === 0) this.#keysOfRun.delete(part.row.run_id);
  }
}
