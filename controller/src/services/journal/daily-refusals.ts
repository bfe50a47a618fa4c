/**
 * Refused logins that have no record of their own in the audit: one record a day for each user whose name strangers tried, and one
 * for all unknown names. They are written with the counts, not when they happen: the answer for a name that exists must take no
 * longer than for one that does not.
 */
import type { AuditRow } from '../../store/schema.ts';

const DAY_MS = 86_400_000;

interface Counted {
  row: AuditRow;
  written: number;
}

export class DailyRefusals {
  readonly #ofToday = new Map<string, Counted>();
  /** Of days before. */
  readonly #left: Counted[] = [];
  #day = 0;

  /** @param first makes the record when the day has none of this kind yet; its count is 1 */
  count(kind: string, now: Date, first: () => AuditRow): void {
    const day = Math.floor(now.getTime() / DAY_MS);
    if (day !== this.#day) {
      this.#left.push(...this.#grown());
      this.#ofToday.clear();
      this.#day = day;
    }
    const entry = this.#ofToday.get(kind);
    if (entry === undefined) {
      this.#ofToday.set(kind, { row: first(), written: 0 });
      return;
    }
    entry.row.count += 1;
    entry.row.last_time = now.toISOString();
  }

  /** Writes each record that has grown; it counts as written only after that. */
  async writeGrown(write: (row: AuditRow) => Promise<void>): Promise<void> {
    for (const counted of [...this.#left, ...this.#grown()]) {
      const row = { ...counted.row };
      await write(row);
      counted.written = row.count;
    }
    const open = this.#left.filter(({ row, written }) => row.count > written);
    this.#left.splice(0, this.#left.length, ...open);
  }

  #grown(): Counted[] {
    return [...this.#ofToday.values()].filter(({ row, written }) => row.count > written);
  }
}
