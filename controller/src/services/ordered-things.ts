/**
 * Lists of many things in memory: found and put in order by little of each, so that only those of a page are made into records. The orders
 * are kept from one look to the next.
 */
import { KeptOrder, type Ordering, sortedIds } from './kept-order.ts';
import { compareKeys, type SortKey } from './list-order.ts';

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
}

export interface OrderedThingsOptions<T> {
  /** Ids of all. */
  all: () => Iterable<string>;
  find: (id: string) => T | undefined;
  /** Fields to order by, of which `touch` tells when one has changed; null for what has no value. */
  own: Record<string, (thing: T) => SortKey>;
  /** Fields of few values that change with something else. */
  derived: Record<string, (thing: T) => SortKey>;
}

export class OrderedThings<T> {
  readonly #options: OrderedThingsOptions<T>;
  readonly #orders = new Map<string, KeptOrder>();

  constructor(options: OrderedThingsOptions<T>) {
    this.#options = options;
  }

  /** It is new, has changed or is gone. */
  touch(id: string): void {
    for (const order of this.#orders.values()) order.touch(id);
  }

  /** What a field is made of has changed for many. */
  forget(field: string): void {
    for (const descending of [false, true]) this.#orders.delete(nameOf({ field, descending }));
  }

  page(
    { ordering, limit, offset }: PageRequest,
    { among, matches }: Which<T> = {},
  ): { count: number; things: T[] } {
    const ids = among === undefined ? this.#all(ordering) : this.#some(ordering, among);
    if (!matches) {
      const things = ids.slice(offset, offset + limit).flatMap(id => this.#options.find(id) ?? []);
      return { count: ids.length, things };
    }
    const things: T[] = [];
    let count = 0;
    for (const id of ids) {
      const thing = this.#options.find(id);
      if (thing === undefined || !matches(thing)) continue;
      if (count >= offset && things.length < limit) things.push(thing);
      count += 1;
    }
    return { count, things };
  }

  #all(ordering: Ordering): readonly string[] {
    if (Object.hasOwn(this.#options.own, ordering.field)) return this.#kept(ordering);
    const groups = new Map<SortKey, string[]>();
    const keyOf = this.#keyOf(ordering.field);
    for (const id of this.#kept({ field: 'id', descending: false })) {
      const key = keyOf(id);
      const group = groups.get(key);
      if (group) group.push(id);
      else groups.set(key, [id]);
    }
    const sign = ordering.descending ? -1 : 1;
    return [...groups].sort(([a], [b]) => sign * compareKeys(a, b)).flatMap(([, group]) => group);
  }

  #some({ field, descending }: Ordering, among: Iterable<string>): readonly string[] {
    const present = [...among].filter(id => this.#options.find(id) !== undefined);
    return sortedIds(present, this.#keyOf(field), descending);
  }

  #kept(ordering: Ordering): readonly string[] {
    const name = nameOf(ordering);
    let order = this.#orders.get(name);
    if (!order) {
      order = new KeptOrder(this.#options.all(), this.#keyOf(ordering.field), ordering.descending);
      this.#orders.set(name, order);
    }
    return order.ids();
  }

  #keyOf(field: string): (id: string) => SortKey {
    const { find, own, derived } = this.#options;
    if (field === 'id') return id => (find(id) === undefined ? undefined : id);
    const keyOf = own[field] ?? derived[field];
    if (!keyOf) throw new Error(`no order by ${field}`);
    return id => {
      const thing = find(id);
      return thing === undefined ? undefined : keyOf(thing);
    };
  }
}

const nameOf = ({ field, descending }: Ordering): string => `${descending ? '-' : ''}${field}`;
