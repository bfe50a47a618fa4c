/** How long all of this work together may keep the event loop, ms: a tenth of what an answer may take. */
const TURN_MS = 5;

/** So many go on in one iteration of the event loop at most. */
const MOST_AT_ONCE = 100;

/** Who waits for a turn, whoever asked first at the front. */
const waiting: (() => void)[] = [];
/** When the present turn began, in ms of `performance.now`. */
let sinceMs = Number.NEGATIVE_INFINITY;
let isArranged = false;

/**
 * The next iteration is for those who wait now, as long as its turn lasts; others are served between any two iterations. Each has a callback
 * of its own, since what goes on with it does so before the next callback.
 */
function arrange(): void {
  if (isArranged) return;
  isArranged = true;
  setImmediate(begin);
  for (let more = Math.min(waiting.length, MOST_AT_ONCE); more > 1; more -= 1) setImmediate(goOn);
  setImmediate(end);
}

function begin(): void {
  sinceMs = performance.now();
  waiting.shift()?.();
}

function goOn(): void {
  if (performance.now() - sinceMs < TURN_MS) waiting.shift()?.();
}

function end(): void {
  isArranged = false;
  if (waiting.length > 0) arrange();
}

/**
 * Shares the event loop between work on many things in a row and everybody else. Such work only seems to wait: a database in
 * the process answers at once, and so do the items of a stream that have come together. To be waited for between two things; lets the
 * others have a turn when the present one has taken long enough. The bound is on all such work of the process together: a thousand that
 * each keep the loop for a moment would keep it for a thousand moments.
 */
export async function shareLoop(): Promise<void> {
  if (waiting.length === 0 && performance.now() - sinceMs < TURN_MS) return;
  await new Promise<void>(resolve => {
    waiting.push(resolve);
    arrange();
  });
}

/**
 * Many things in pieces of so many at most, with `shareLoop` between: for work that keeps the loop for less than its turn with each piece.
 * Those of a map or a set that come meanwhile are among them; one that went and came again may be there twice.
 */
export async function* inPieces<T>(things: Iterable<T>, atOnce: number): AsyncGenerator<readonly T[]> {
  let piece: T[] = [];
  for (const thing of things) {
    piece.push(thing);
    if (piece.length < atOnce) continue;
    yield piece;
    piece = [];
    await shareLoop();
  }
  if (piece.length > 0) yield piece;
}
