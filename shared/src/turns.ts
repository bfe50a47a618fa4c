/** How long all of this work together may keep the event loop, ms: a tenth of what an answer may take. */
const TURN_MS = 5;

/** Who waits for a turn, whoever asked first at the front. */
const waiting: (() => void)[] = [];
/** When the present turn began, in ms of `performance.now`. */
let sinceMs = Number.NEGATIVE_INFINITY;

/** One goes on in each iteration of the event loop: others are served between any two. */
function next(): void {
  sinceMs = performance.now();
  waiting.shift()!();
  if (waiting.length > 0) setImmediate(next);
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
    if (waiting.length === 1) setImmediate(next);
  });
}
