/**
 * Refusals that have a record already. A client that is refused again and again, by the same rule and from the same place, is one
 * record with a count: a program with a wrong token, or an attacker, must not push everything else out of the audit.
 */

/** After this time the next refusal is a record of its own again. */
const WINDOW_MS = 10 * 60 * 1000;
const MAX_ENTRIES = 10_000;

export interface CountedRefusal {
  /** Of its audit record. */
  id: string;
  count: number;
  lastTime: string;
}

interface Entry extends CountedRefusal {
  since: number;
  written: number;
}

export class RepeatedRefusals {
  readonly #entries = new Map<string, Entry>();
  /** Counts of entries that were forgotten before their count was written. */
  readonly #left: CountedRefusal[] = [];

  /** Counts one. @returns whether a record of its kind stands already; else this `id` is that record from now on. */
  meet(kind: string, id: string, now: Date): boolean {
    const entry = this.#entries.get(kind);
    if (entry !== undefined && now.getTime() - entry.since < WINDOW_MS) {
      entry.count += 1;
      entry.lastTime = now.toISOString();
      return true;
    }
    if (entry !== undefined) this.forget(kind);
    const [oldest] = this.#entries.keys();
    if (oldest !== undefined && this.#entries.size >= MAX_ENTRIES) this.forget(oldest);
    const since = now.getTime();
    this.#entries.set(kind, { id, count: 1, lastTime: now.toISOString(), since, written: 1 });
    return false;
  }

  /** The next of its kind is a record of its own. */
  forget(kind: string): void {
    const entry = this.#entries.get(kind);
    if (entry !== undefined && entry.count > entry.written) this.#left.push(entry);
    this.#entries.delete(kind);
  }

  /** The counts that have grown since this was called last. */
  takeGrown(): CountedRefusal[] {
    const grown = this.#left.splice(0);
    for (const entry of this.#entries.values()) {
      if (entry.count === entry.written) continue;
      entry.written = entry.count;
      grown.push({ id: entry.id, count: entry.count, lastTime: entry.lastTime });
    }
    return grown;
  }
}
