/** Puts many things in order without keeping the event loop: parts of them, and then these together, with turns for others between. */
import { inPieces, shareAnswering } from '@virtkeep/shared/turns';

/**
 * So many are put in order at once, and so many merged: a few milliseconds when each comparison asks for the order of a language. Not
 * fewer, since each turn may be a while in coming.
 */
const SORTED_AT_ONCE = 2000;
const MERGED_AT_ONCE = 5000;

/** @param compare never 0 for two of them. It answers the same as long as they are put in order: they do not change meanwhile */
export async function sortInPieces<T>(
  things: readonly T[],
  compare: (a: T, b: T) => number,
): Promise<readonly T[]> {
  let parts: (readonly T[])[] = [];
  for await (const part of inPieces(things, SORTED_AT_ONCE)) parts.push([...part].sort(compare));
  while (parts.length > 1) {
    const pairs: (readonly T[])[] = [];
    for (let index = 0; index < parts.length; index += 2)
      pairs.push(await merged(parts[index]!, parts[index + 1] ?? [], compare));
    parts = pairs;
  }
  return parts[0] ?? [];
}

async function merged<T>(
  first: readonly T[],
  second: readonly T[],
  compare: (a: T, b: T) => number,
): Promise<readonly T[]> {
  await shareAnswering();
  if (second.length === 0) return first;
  // most were in order before
  if (compare(first.at(-1)!, second[0]!) < 0) return first.concat(second);
  const all: T[] = [];
  let [from, other] = [0, 0];
  while (from < first.length && other < second.length) {
    if (compare(first[from]!, second[other]!) < 0) {
      all.push(first[from]!);
      from += 1;
    } else {
      all.push(second[other]!);
      other += 1;
    }
    if (all.length % MERGED_AT_ONCE === 0) await shareAnswering();
  }
  return all.concat(first.slice(from), second.slice(other));
}
