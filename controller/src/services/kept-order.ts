/**
 * The ids of many things in the order of one of their fields, kept for the next list: a hundred thousand are not put in order for each
 * page that somebody looks at. What has changed since the last look is put in its place then: at once where it is little, in pieces where it
 * is more, so that nobody else waits for it; where it is a good part of the whole, all is put in order anew, in pieces as well.
 */
import { inPieces, shareAnswering } from '@virtkeep/shared/turns';
import { comparison, OrderOfCodes, type SortKey } from './list-order.ts';
import { sortInPieces } from './sort-in-pieces.ts';

export interface Ordering {
  field: string;
  descending: boolean;
}

export interface KeptOrderOptions {
  /** Ids of all there are; some may come twice, or be of what is there no more. */
  all: () => Iterable<string>;
  /**
   * Undefined for what is there no more, or is none of these; of what has no value null. Whenever it changes for one of them, `touch` or
   * `forget` is called, at the latest by the next `refresh`.
   */
  keyOf: (id: string) => SortKey;
  descending: boolean;
  /** Called whenever others have gone on: tells what has changed elsewhere without a word since it was called last. */
  refresh?: (() => void) | undefined;
}

/** So many that have changed are put in their places at once, which keeps the event loop for 10 to 20 ms among a hundred thousand. */
const FEW = 128;
/** When a greater part of the whole has changed, all of it is put in order anew. */
const MOST_PLACED = 1 / 8;
const KEYS_AT_ONCE = 1000;
const IDS_AT_ONCE = 10_000;
/**
 * So often one look lets others go on before it looks what has changed meanwhile. What is left then is put in its place at once, however
 * much it is: a look has an end.
 */
const MOST_ROUNDS = 4;

interface KeyedId {
  id: string;
  key: SortKey;
}

/** In order. The keys are those that they were put in their places by, whatever has become of them since. */
interface Ordered {
  ids: readonly string[];
  keys: readonly SortKey[];
}

export class KeptOrder {
  readonly #options: KeptOrderOptions;
  #ordered: Ordered = { ids: [], keys: [] };
  /** All but these are in order. */
  #changed = new Set<string>();
  /** Nothing is known of the order of any. */
  #isStale = true;
  #arranging: Promise<void> | undefined;

  constructor(options: KeptOrderOptions) {
    this.#options = options;
  }

  /** It is new, has changed or is gone. */
  touch(id: string): void {
    // of all that is put in order anew nothing need be known
    if (!this.#isStale) this.#changed.add(id);
  }

  /** Any may have changed. */
  forget(): void {
    this.#isStale = true;
    this.#changed.clear();
  }

  /**
   * Those who look while much is put in order wait for the same.
   * @param use given the ids at a moment at which each is there, in order; equal ones by their id, in either direction
   */
  async read<R>(use: (ids: readonly string[]) => R | Promise<R>): Promise<R> {
    this.#options.refresh?.();
    for (let round = 0; this.#arranging || (this.#isToArrange() && round < MOST_ROUNDS); round += 1) {
      this.#arranging ??= this.#arrange().finally(() => {
        this.#arranging = undefined;
      });
      await this.#arranging;
      this.#options.refresh?.();
    }
    this.#settle();
    return use(this.#ordered.ids);
  }

  #isToArrange(): boolean {
    return this.#isStale || this.#changed.size > FEW;
  }

  /** In pieces. What changes meanwhile is kept for the next round. */
  async #arrange(): Promise<void> {
    const isAnew = this.#isStale || this.#changed.size > this.#ordered.ids.length * MOST_PLACED;
    const candidates = this.#candidates();
    const changed = this.#changed;
    this.#isStale = false;
    this.#changed = new Set();
    try {
      const keyed = await this.#keyed(isAnew ? candidates : changed);
      const fresh = await sortInPieces(keyed.all, keyed.comparison(this.#options.descending));
      if (isAnew) this.#ordered = await inTurns(apart(fresh));
      else this.#ordered = await inTurns(placed(this.#ordered, fresh, changed, this.#compare()));
    } catch (error) {
      this.#isStale = true;
      throw error;
    }
  }

  /** Ids of all that may be there, once; those that were in order before come first, and so. */
  #candidates(): Iterable<string> {
    return unique(this.#ordered.ids, this.#changed, this.#isStale ? this.#options.all() : []);
  }

  /** What these are to be put in order by, of those that are there, and how. */
  async #keyed(candidates: Iterable<string>): Promise<KeyedIds> {
    const keyed = new KeyedIds();
    for await (const piece of inPieces(candidates, KEYS_AT_ONCE)) {
      // what changes elsewhere and changes back until the end would not be told of then
      this.#options.refresh?.();
      this.#addTo(keyed, piece);
    }
    return keyed;
  }

  #addTo(keyed: KeyedIds, candidates: Iterable<string>): void {
    for (const id of candidates) {
      const key = this.#options.keyOf(id);
      if (key !== undefined) keyed.add({ id, key });
    }
  }

  #compare(): (a: KeyedId, b: KeyedId) => number {
    return comparison({ keys: false, ids: false }, this.#options.descending);
  }

  /** At once. */
  #settle(): void {
    if (!this.#isToArrange() && this.#changed.size === 0) return;
    const before = this.#isStale ? { ids: [], keys: [] } : this.#ordered;
    const keyed = new KeyedIds();
    this.#addTo(keyed, this.#isStale ? this.#candidates() : this.#changed);
    const fresh = keyed.all.sort(keyed.comparison(this.#options.descending));
    this.#ordered = atOnce(placed(before, fresh, this.#changed, this.#compare()));
    this.#isStale = false;
    this.#changed.clear();
  }
}

/** What is to be put in order, and by what; learns meanwhile how its keys can be compared. */
class KeyedIds {
  readonly all: KeyedId[] = [];
  readonly #keys = new OrderOfCodes();
  readonly #ids = new OrderOfCodes();

  add(one: KeyedId): void {
    this.all.push(one);
    this.#keys.add(one.key);
    this.#ids.add(one.id);
  }

  comparison(descending: boolean): (a: KeyedId, b: KeyedId) => number {
    return comparison({ keys: this.#keys.holds, ids: this.#ids.holds }, descending);
  }
}

type InPieces<R> = Generator<undefined, R>;

function* apart(keyed: readonly KeyedId[]): InPieces<Ordered> {
  const [ids, keys]: [string[], SortKey[]] = [[], []];
  for (const { id, key } of keyed) {
    ids.push(id);
    keys.push(key);
    if (ids.length % IDS_AT_ONCE === 0) yield undefined;
  }
  return { ids, keys };
}

/**
 * What has changed is put in its new place, or left out.
 * @param fresh those of the changed ones that are there, in order
 */
function* placed(
  before: Ordered,
  fresh: readonly KeyedId[],
  changed: ReadonlySet<string>,
  compare: (a: KeyedId, b: KeyedId) => number,
): InPieces<Ordered> {
  const [ids, keys]: [string[], SortKey[]] = [[], []];
  let from = 0;
  for (const one of [...fresh, undefined]) {
    const to = one ? placeOf(one, before, from, compare) : before.ids.length;
    for (; from < to; from += 1) {
      const id = before.ids[from]!;
      if (!changed.has(id)) {
        ids.push(id);
        keys.push(before.keys[from]);
      }
      if (from % IDS_AT_ONCE === 0) yield undefined;
    }
    if (!one) break;
    ids.push(one.id);
    keys.push(one.key);
  }
  return { ids, keys };
}

/** Before the first one that comes after it. */
function placeOf(
  one: KeyedId,
  { ids, keys }: Ordered,
  from: number,
  compare: (a: KeyedId, b: KeyedId) => number,
): number {
  let low = from;
  let high = ids.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (compare({ id: ids[middle]!, key: keys[middle] }, one) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

async function inTurns<R>(work: InPieces<R>): Promise<R> {
  for (let step = work.next(); ; step = work.next()) {
    if (step.done) return step.value;
    await shareAnswering();
  }
}

function atOnce<R>(work: InPieces<R>): R {
  for (let step = work.next(); ; step = work.next()) if (step.done) return step.value;
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
