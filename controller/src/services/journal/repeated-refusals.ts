/**
 * Refusals that were written down already. Whoever is refused again and again, by the same rule in the same place, is one
 * record with a count: a program with a wrong token, or somebody who tries, must not push everything else out of the audit.
 */

/** Then the next one is a record of its own again. */
const WINDOW_MS = 10 * 60 * 1000;
const MAX_KNOWN = 10_000;

export interface CountedRefusal {
  /** Of its audit record. */
  id: string;
  count: number;
  lastTime: string;
}

interface Known extends CountedRefusal {
  since: number;
  written: number;
}

export class RepeatedRefusals {
  readonly #known = new Map<string, Known>();
  /** Counts of what is known no longer. */
  readonly #left: CountedRefusal[] = [];

  /** Counts one. @returns whether a record of its kind stands already; else this `id` is that record from now on. */
  meet(kind: string, id: string, now: Date): boolean {
    const known = this.#known.get(kind);
    if (known !== undefined && now.getTime() - known.since < WINDOW_MS) {
      known.count += 1;
      known.lastTime = now.toISOString();
      return true;
    }
    if (known !== undefined) this.forget(kind);
    const [oldest] = this.#known.keys();
    if (oldest !== undefined && this.#known.size >= MAX_KNOWN) this.forget(oldest);
    const since = now.getTime();
    this.#known.set(kind, { id, count: 1, lastTime: now.toISOString(), since, written: 1 });
    return false;
  }

  /** The next of its kind is a record of its own. */
  forget(kind: string): void {
    const known = this.#known.get(kind);
    if (known !== undefined && known.count > known.written) this.#left.push(known);
    this.#known.delete(kind);
  }

  /** The counts that have grown since this was called last. */
  takeGrown(): CountedRefusal[] {
    const grown = this.#left.splice(0);
    for (const known of this.#known.values()) {
      if (known.count === known.written) continue;
      known.written = known.count;
      grown.push({ id: known.id, count: known.count, lastTime: known.lastTime });
    }
    return grown;
  }
}
