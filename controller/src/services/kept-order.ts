/**
 * The ids of many things in the order of one of their fields, kept for the next list: a hundred thousand are not put in order for each
 * page that somebody looks at. What has changed since the last look is put in its place then; it is little beside the whole.
 */
import { compareKeys, compareTexts, inOrder, type SortKey } from './list-order.ts';

export interface Ordering {
  field: string;
  descending: boolean;
}

/** Above this part of the whole, all of it is put in order anew. */
const MOST_CHANGED = 1 / 8;

export class KeptOrder {
  readonly #keyOf: (id: string) => SortKey;
  readonly #descending: boolean;
  #ids: readonly string[] = [];
  readonly #changed: Set<string>;

  /**
   * @param ids all there are
   * @param keyOf undefined for what is there no more, or is none of these; of what has no value null. It changes for nothing that is not
   *   told of by `touch`.
   */
  constructor(ids: Iterable<string>, keyOf: (id: string) => SortKey, descending: boolean) {
    this.#keyOf = keyOf;
    this.#descending = descending;
    this.#changed = new Set(ids);
  }

  /** It is new, has changed or is gone. */
  touch(id: string): void {
    this.#changed.add(id);
  }

  /** Equal ones by their id, in either direction. */
  ids(): readonly string[] {
    if (this.#changed.size === 0) return this.#ids;
    const fresh = [...this.#changed].filter(id => this.#keyOf(id) !== undefined);
    const rest = this.#ids.filter(id => !this.#changed.has(id));
    this.#changed.clear();
    const isMuch = fresh.length > rest.length * MOST_CHANGED;
    this.#ids = isMuch ? this.#sorted([...rest, ...fresh]) : this.#merged(rest, this.#sorted(fresh));
    return this.#ids;
  }

  #sorted(ids: readonly string[]): string[] {
    return sortedIds(ids, this.#keyOf, this.#descending);
  }

  /** Both are in order; few are to be put among many. */
  #merged(many: readonly string[], few: readonly string[]): string[] {
    const parts: (readonly string[])[] = [];
    let from = 0;
    for (const id of few) {
      const to = this.#placeOf(id, many, from);
      parts.push(many.slice(from, to), [id]);
      from = to;
    }
    parts.push(many.slice(from));
    return parts.flat();
  }

  #placeOf(id: string, ids: readonly string[], from: number): number {
    const key = this.#keyOf(id);
    const sign = this.#descending ? -1 : 1;
    let low = from;
    let high = ids.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = ids[middle]!;
      const difference = sign * compareKeys(this.#keyOf(other), key) || compareTexts(other, id);
      if (difference < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Equal ones by their id, in either direction. */
export function sortedIds(
  ids: readonly string[],
  keyOf: (id: string) => SortKey,
  descending: boolean,
): string[] {
  return inOrder(ids, keyOf, id => id, descending);
}
