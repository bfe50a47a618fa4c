/**
 * Lists of many things in memory: found and put in order by little of each, so that only those of a page are made into records. Which match
 * and their order are kept from one look to the next.
 */
import { KeptOrder, type Ordering, sortedIds } from './kept-order.ts';
import type { SortKey } from './list-order.ts';

export interface PageRequest {
  ordering: Ordering;
  limit: number;
  offset: number;
}

export interface Which<T> {
  /** Ids of which the others are none; undefined: all. */
  among?: Iterable<string> | undefined;
  /** Undefined: all match. */
  matches?: ((thing: T) => boolean) | undefined;
  /** The same for all that match the same, which changes for nothing that `touch` does not tell; undefined: they are not kept. */
  name?: string | undefined;
}

export interface OrderedThingsOptions<T> {
  /** Ids of all. */
  all: () => Iterable<string>;
  find: (id: string) => T | undefined;
  /** Fields to order by; null for what has no value. */
  fields: Record<string, (thing: T) => SortKey>;
}

/** Each is as long as there are things; the one that was not looked at for longest goes. */
const MAX_KEPT = 12;

export class OrderedThings<T> {
  readonly #options: OrderedThingsOptions<T>;
  readonly #orders = new Map<string, KeptOrder>();

  constructor(options: OrderedThingsOptions<T>) {
    this.#options = options;
  }

  /** It is new, has changed or is gone, or what it is ordered by has changed elsewhere. */
  touch(id: string): void {
    for (const order of this.#orders.values()) order.touch(id);
  }

  /** So much has changed that all is to be put in order anew. */
  forget(): void {
    this.#orders.clear();
  }

  page(request: PageRequest, which: Which<T> = {}): { count: number; things: T[] } {
    const { among, matches, name } = which;
    const { ordering, limit, offset } = request;
    if (among !== undefined) return this.#cut(request, this.#some(ordering, among, matches));
    if (!matches) return this.#cut(request, this.#kept(ordering, {}));
    if (name !== undefined) return this.#cut(request, this.#kept(ordering, which));
    const things: T[] = [];
    let count = 0;
    for (const id of this.#kept(ordering, {})) {
      const thing = this.#options.find(id);
      if (thing === undefined || !matches(thing)) continue;
      if (count >= offset && things.length < limit) things.push(thing);
      count += 1;
    }
    return { count, things };
  }

  #cut({ limit, offset }: PageRequest, ids: readonly string[]): { count: number; things: T[] } {
    const things = ids.slice(offset, offset + limit).flatMap(id => this.#options.find(id) ?? []);
    return { count: ids.length, things };
  }

  #some({ field, descending }: Ordering, among: Iterable<string>, matches: Which<T>['matches']): string[] {
    const keyOf = this.#keyOf(field, matches);
    const ids = [...among].filter(id => keyOf(id) !== undefined);
    return sortedIds(ids, keyOf, descending);
  }

  #kept({ field, descending }: Ordering, { matches, name = '' }: Which<T>): readonly string[] {
    const key = `${descending ? '-' : ''}${field} ${name}`;
    const order =
      this.#orders.get(key) ?? new KeptOrder(this.#options.all(), this.#keyOf(field, matches), descending);
    this.#orders.delete(key);
    this.#orders.set(key, order);
    if (this.#orders.size > MAX_KEPT) this.#orders.delete(this.#orders.keys().next().value!);
    return order.ids();
  }

  #keyOf(field: string, matches: Which<T>['matches']): (id: string) => SortKey {
    const { find, fields } = this.#options;
    const keyOf = fields[field];
    if (!keyOf) throw new Error(`no order by ${field}`);
    return id => {
      const thing = find(id);
      return thing === undefined || (matches && !matches(thing)) ? undefined : keyOf(thing);
    };
  }
}
