/**
 * How exactly the audit says who was refused a login. An attacker can use another name or address for each attempt, and must not
 * push everything else out of the audit. So in each period only the first attempts are recorded exactly, and the records of a
 * day are limited so that the audit still reaches back for years. Other attempts are still counted for the user whose name was
 * tried (`daily-refusals.ts`).
 */

/** `named`: whom and from where. `placed`: from where, among others. `folded`: neither, with all that is like it. */
export type Exactness = 'named' | 'placed' | 'folded';

const WINDOW_MS = 10 * 60 * 1000;
const SUBJECTS_OF_PLACE = 20;
const SUBJECTS = 100;
const PLACES = 100;
const DAY_MS = 86_400_000;

export class Strangers {
  readonly #recordsPerDay: number;
  /** Of this while: who was named, by place. */
  readonly #places = new Map<string, Set<string>>();
  #subjects = 0;
  #since = 0;
  #day = 0;
  #records = 0;

  constructor(recordsPerDay: number) {
    this.#recordsPerDay = recordsPerDay;
  }

  /** @param subject the user name that the stranger tried; undefined where that says nothing */
  meet(place: string, subject: string | undefined, now: Date): Exactness {
    const sinceMs = now.getTime() - this.#since;
    if (sinceMs < 0 || sinceMs > WINDOW_MS) this.#begin(now);
    const subjects = this.#subjectsOf(place);
    if (subjects === undefined) return 'folded';
    if (subject === undefined) return 'placed';
    if (subjects.has(subject)) return 'named';
    if (subjects.size >= SUBJECTS_OF_PLACE || this.#subjects >= SUBJECTS) return 'placed';
    subjects.add(subject);
    this.#subjects += 1;
    return 'named';
  }

  /** Whether the day has room for another record. */
  takeRecord(now: Date): boolean {
    const day = Math.floor(now.getTime() / DAY_MS);
    if (day !== this.#day) this.#records = 0;
    this.#day = day;
    if (this.#records >= this.#recordsPerDay) return false;
    this.#records += 1;
    return true;
  }

  #begin(now: Date): void {
    this.#places.clear();
    this.#subjects = 0;
    this.#since = now.getTime();
  }

  #subjectsOf(place: string): Set<string> | undefined {
    const existing = this.#places.get(place);
    if (existing !== undefined || this.#places.size >= PLACES) return existing;
    const subjects = new Set<string>();
    this.#places.set(place, subjects);
    return subjects;
  }
}
