let last = 0;

/** A number that grows with every call, also across restarts: microseconds of the clock, at least one more each time. */
export function nextSequence(): number {
  last = Math.max(last + 1, Date.now() * 1000);
  return last;
}
