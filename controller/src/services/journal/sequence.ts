let last = 0;

/** Numbers from now on are higher: the clock of the controller that wrote these may have been ahead of ours. */
export function continueAfter(sequence: number): void {
  last = Math.max(last, sequence);
}

/** A number that grows with every call, also across restarts: microseconds of the clock, at least one more each time. */
export function nextSequence(): number {
  last = Math.max(last + 1, Date.now() * 1000);
  return last;
}
