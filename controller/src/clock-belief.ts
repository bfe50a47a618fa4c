/** A clock that goes on by so much more, or less, than the time that has passed has jumped. */
export const JUMP_MS = 60_000;
/** After a jump forward a clock is believed once it has gone on for so long without another one. */
const STEADY_MS = 60_000;

/** Tells a clock that was put forward from one that is ahead for a moment. One that is put back is believed at once: nothing is due by it. */
export class ClockBelief {
  /** What the clock shows less the time that has passed, as was believed last; in ms. */
  #believed: number | undefined;
  /** The same since a jump forward, and when that was seen. */
  #doubted: { offset: number; since: number } | undefined;

  /**
   * To be asked again and again: the first answer is yes.
   * @param now what the clock shows, in ms since 1970
   * @param elapsed the time that has passed since any instant, in ms, whatever the clock is put to
   */
  believes(now: number, elapsed: number): boolean {
    const offset = now - elapsed;
    if (offset - (this.#believed ?? offset) > JUMP_MS) {
      if (Math.abs(offset - (this.#doubted?.offset ?? Number.NEGATIVE_INFINITY)) > JUMP_MS)
        this.#doubted = { offset, since: elapsed };
      if (elapsed - this.#doubted!.since < STEADY_MS) return false;
    }
    this.#believed = offset;
    this.#doubted = undefined;
    return true;
  }
}

/** Begins to watch the clock of this machine. @returns tells, each time it is asked, whether that is believed */
export function watchClock(): () => boolean {
  const belief = new ClockBelief();
  const isBelieved = () => belief.believes(Date.now(), performance.now());
  isBelieved();
  return isBelieved;
}
