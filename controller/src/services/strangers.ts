/**
 * Which of those who were refused a login the audit tells apart: the first of a while, then only their place, then nobody.
 * Anybody can think of another name for each try, or another address, and must not push everything else out of the audit.
 */

const WINDOW_MS = 10 * 60 * 1000;
const SUBJECTS_OF_PLACE = 20;
const SUBJECTS = 100;
const PLACES = 100;

export class Strangers {
  readonly #places = new Map<string, Set<string>>();
  #subjects = 0;
  #since = 0;

  /** @returns what of this is told apart; a subject only with its place */
  meet(place: string, subject: string | undefined, now: Date): { place?: string; subject?: string } {
    const sinceMs = now.getTime() - this.#since;
    if (sinceMs < 0 || sinceMs > WINDOW_MS) this.#begin(now);
    const subjects = this.#subjectsOf(place);
    if (subjects === undefined) return {};
    if (subject === undefined) return { place };
    if (subjects.has(subject)) return { place, subject };
    if (subjects.size >= SUBJECTS_OF_PLACE || this.#subjects >= SUBJECTS) return { place };
    subjects.add(subject);
    this.#subjects += 1;
    return { place, subject };
  }

  #begin(now: Date): void {
    this.#places.clear();
    this.#subjects = 0;
    this.#since = now.getTime();
  }

  #subjectsOf(place: string): Set<string> | undefined {
    const known = this.#places.get(place);
    if (known !== undefined || this.#places.size >= PLACES) return known;
    const subjects = new Set<string>();
    this.#places.set(place, subjects);
    return subjects;
  }
}
