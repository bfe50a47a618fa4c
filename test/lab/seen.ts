/** What a test saw last, which is gone when somebody asks why it failed: `test/runner/environment.js` writes it to the failure. */
const SEEN = Symbol.for('virtkeep.seen');

/** @returns what there is to see, empty: nothing (any more) */
export type Tell = () => Promise<string> | string;

const kept = globalThis as unknown as Record<symbol, Set<Tell> | undefined>;

/** @returns ends it */
export function tellOfFailures(tell: Tell): () => void {
  kept[SEEN] ??= new Set();
  const all = kept[SEEN];
  all.add(tell);
  return () => all.delete(tell);
}
