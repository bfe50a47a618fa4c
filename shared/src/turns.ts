/** How long all work of one kind together may keep the event loop in one iteration, ms: a tenth of what an answer may take. */
const TURN_MS = 5;

/** So many go on in one iteration of the event loop at most. */
const MOST_AT_ONCE = 100;

/** The turns of all work of one kind. */
class Turns {
  /** Who waits for a turn, whoever asked first at the front. */
  readonly #waiting: (() => void)[] = [];
  /** When the present turn began, in ms of `performance.now`. */
  #sinceMs = Number.NEGATIVE_INFINITY;
  #isArranged = false;

  async share(): Promise<void> {
    if (this.#waiting.length === 0 && performance.now() - this.#sinceMs < TURN_MS) return;
    await new Promise<void>(resolve => {
      this.#waiting.push(resolve);
      this.#arrange();
    });
  }

  /**
   * The next iteration is for those who wait now, as long as its turn lasts; others are served between any two iterations. Each has a
   * callback of its own, since what goes on with it does so before the next callback.
   */
  #arrange(): void {
    if (this.#isArranged) return;
    this.#isArranged = true;
    setImmediate(() => this.#begin());
    for (let more = Math.min(this.#waiting.length, MOST_AT_ONCE); more > 1; more -= 1)
      setImmediate(() => this.#goOn());
    setImmediate(() => this.#end());
  }

  #begin(): void {
    this.#sinceMs = performance.now();
    this.#waiting.shift()?.();
  }

  #goOn(): void {
    if (performance.now() - this.#sinceMs < TURN_MS) this.#waiting.shift()?.();
  }

  #end(): void {
    this.#isArranged = false;
    if (this.#waiting.length > 0) this.#arrange();
  }
}

const background = new Turns();
const answers = new Turns();

/**
 * Shares the event loop between work on many things in a row and everybody else. Such work only seems to wait: a database in
 * the process answers at once, and so do the items of a stream that have come together. To be waited for between two things; lets the
 * others have a turn when the present one has taken long enough. The bound is on all such work of the process together: a thousand that
 * each keep the loop for a moment would keep it for a thousand moments.
 */
export const shareLoop = (): Promise<void> => background.share();

/**
 * The same for what somebody's answer waits for, which has turns of its own: a list that is put in order in a few hundred turns would else
 * wait for all nodes that are taken over, in each of them.
 */
export const shareAnswering = (): Promise<void> => answers.share();

/**
 * Many things in pieces of so many at most, with `shareAnswering` between: for work that keeps the loop for less than its turn with each piece.
 * Those of a map or a set that come meanwhile are among them; one that went and came again may be there twice.
 */
export async function* inPieces<T>(things: Iterable<T>, atOnce: number): AsyncGenerator<readonly T[]> {
  let piece: T[] = [];
  for (const thing of things) {
    piece.push(thing);
    if (piece.length < atOnce) continue;
    yield piece;
    piece = [];
    await shareAnswering();
  }
  if (piece.length > 0) yield piece;
}
