/**
 * The ids of many things in the order of one of their fields, kept for the next list: a hundred thousand are not put in order for each
 * page that somebody looks at. What has changed since the last look is put in its place then; it is little beside the whole. Where it is
 * not, all is put in order anew, in pieces, so that nobody else waits for it.
 */
import { inPieces, shareLoop } from '@virtkeep/shared/turns';
import { compareKeys, compareTexts, comparison, inOrder, OrderOfCodes, type SortKey } from './list-order.ts';
import { sortInPieces } from './sort-in-pieces.ts';

export interface Ordering {
  field: string;
  descending: boolean;
}

export interface KeptOrderOptions {
  /** Ids of all there are; some may come twice, or be of what is there no more. */
  all: () => Iterable<string>;
  /**
   * Undefined for what is there no more, or is none of these; of what has no value null. It changes for nothing that is not told of by
   * `touch` or `forget`, at the latest when `refresh` is called.
   */
  keyOf: (id: string) => SortKey;
  descending: boolean;
  /** Called whenever others have gone on: tells what has changed elsewhere without a word since it was called last. */
  refresh?: (() => void) | undefined;
}

/** So many that have changed are put in their places at once, which keeps the event loop for 10 to 20 ms among a hundred thousand. */
const FEW = 128;
/** When more have changed, it is sooner done to put all in order anew. */
const MANY = 1000;
const KEYS_AT_ONCE = 1000;
/**
 * So often one look lets others go on before it looks what has changed meanwhile. What is left then is put in its place at once, however
 * much it is: a look has an end.
 */
const MOST_ROUNDS = 12;

export class KeptOrder {
  readonly #options: KeptOrderOptions;
  #ids: readonly string[] = [];
  /** All but these are in order, as long as nothing is built. */
  #changed = new Set<string>();
  /** Nothing is known of the order of any. */
  #isStale = true;
  #building: Promise<void> | undefined;

  constructor(options: KeptOrderOptions) {
    this.#options = options;
  }

  /** It is new, has changed or is gone. */
  touch(id: string): void {
    this.#changed.add(id);
  }

  /** Any may have changed. */
  forget(): void {
    this.#isStale = true;
  }

  /**
   * Those who look while all is put in order wait for the same.
   * @param use given the ids at a moment at which each is there, in order; equal ones by their id, in either direction
   */
  async read<R>(use: (ids: readonly string[]) => R | Promise<R>): Promise<R> {
    this.#options.refresh?.();
    for (let round = 0; this.#building || (this.#isMuch() && round < MOST_ROUNDS); round += 1) {
      await this.#lessen();
      this.#options.refresh?.();
    }
    this.#settle(this.#changed.size);
    return use(this.#ids);
  }

  #isMuch(): boolean {
    return this.#isStale || this.#changed.size > FEW;
  }

  /** Puts some of what has changed in its place, or all of it, and lets others go on. */
  async #lessen(): Promise<void> {
    if (!this.#building && !this.#isStale && this.#changed.size <= MANY) {
      this.#settle(FEW);
      return shareLoop();
    }
    this.#building ??= this.#build().finally(() => {
      this.#building = undefined;
    });
    return this.#building;
  }

  /** What changes meanwhile is kept for the next round. */
  async #build(): Promise<void> {
    const candidates = this.#candidates();
    this.#isStale = false;
    this.#changed = new Set();
    try {
      this.#ids = await this.#sorted(candidates);
    } catch (error) {
      this.#isStale = true;
      throw error;
    }
  }

  /** Ids of all that may be there, once; those that were in order before come first, and so. */
  #candidates(): Iterable<string> {
    return unique(this.#ids, this.#changed, this.#isStale ? this.#options.all() : []);
  }

  async #sorted(candidates: Iterable<string>): Promise<readonly string[]> {
    const { keyOf, descending, refresh } = this.#options;
    const keyed: { id: string; key: SortKey }[] = [];
    const [keys, ids] = [new OrderOfCodes(), new OrderOfCodes()];
    for await (const piece of inPieces(candidates, KEYS_AT_ONCE)) {
      // what changes elsewhere and changes back until the end would not be told of then
      refresh?.();
      for (const id of piece) {
        const key = keyOf(id);
        if (key === undefined) continue;
        keyed.push({ id, key });
        keys.add(key);
        ids.add(id);
      }
    }
    const compare = comparison({ keys: keys.holds, ids: ids.holds }, descending);
    return (await sortInPieces(keyed, compare)).map(({ id }) => id);
  }

  /** At once; the others that have changed are in no place then. @param most so many of them, unless nothing was in order before */
  #settle(most: number): void {
    const { keyOf, descending } = this.#options;
    if (!this.#isStale && this.#changed.size === 0) return;
    const rest = this.#isStale ? [] : this.#ids.filter(id => !this.#changed.has(id));
    const changed = this.#isStale ? [...this.#candidates()] : [...this.#changed].slice(0, most);
    const there = changed.filter(id => keyOf(id) !== undefined);
    const isMuch = there.length > FEW;
    this.#ids = isMuch
      ? sortedIds([...rest, ...there], keyOf, descending)
      : this.#merged(rest, sortedIds(there, keyOf, descending));
    this.#isStale = false;
    for (const id of changed) this.#changed.delete(id);
  }

  /** Both are in order; few are to be put among many. */
  #merged(many: readonly string[], few: readonly string[]): readonly string[] {
    const parts: (readonly string[])[] = [];
    let from = 0;
    for (const id of few) {
      const to = this.#placeOf(id, many, from);
      parts.push(many.slice(from, to), [id]);
      from = to;
    }
    // much faster than `flat`
    return ([] as string[]).concat(...parts, many.slice(from));
  }

  #placeOf(id: string, ids: readonly string[], from: number): number {
    const { keyOf, descending } = this.#options;
    const key = keyOf(id);
    const sign = descending ? -1 : 1;
    let low = from;
    let high = ids.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = ids[middle]!;
      const difference = sign * compareKeys(keyOf(other), key) || compareTexts(other, id);
      if (difference < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** The ids of the order before that have not changed, those that have, and all others. */
function* unique(
  before: readonly string[],
  changed: ReadonlySet<string>,
  all: Iterable<string>,
): Generator<string> {
  const known = new Set(changed);
  for (const id of before) {
    if (known.has(id)) continue;
    known.add(id);
    yield id;
  }
  yield* changed;
  for (const id of all) {
    if (known.has(id)) continue;
    known.add(id);
    yield id;
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
