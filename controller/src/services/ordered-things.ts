/**
 * Lists of many things in memory: found and put in order by little of each, so that only those of a page are made into records. Which match
 * and their order are kept from one look to the next. Whatever goes through all of them does so in pieces, with turns for others between.
 */
import { inPieces } from '@virtkeep/shared/turns';
import { KeptOrder, type Ordering } from './kept-order.ts';
import type { SortKey } from './list-order.ts';

export interface PageRequest {
  ordering: Ordering;
  limit: number;
  offset: number;
}

export interface Which<T> {
  /** Ids of which the others are none, as of when they are read; undefined: all. */
  among?: Iterable<string> | undefined;
  /** Undefined: all match. */
  matches?: ((thing: T) => boolean) | undefined;
  /** The same for all that match the same; when that changes for one, `touch` or `forget` tells. Undefined: they are not kept. */
  name?: string | undefined;
}

export interface OrderedThingsOptions<T> {
  /** Ids of all. */
  all: () => Iterable<string>;
  find: (id: string) => T | undefined;
  /** Fields to order by; null for what has no value. */
  fields: Record<string, (thing: T) => SortKey>;
  /** Those of them that say something of its node. */
  nodeFields?: readonly string[];
  /**
   * Called whenever others have gone on, many times for a page: tells by `touch` or `forget` what has changed elsewhere without a word
   * since it was called last, in all orders: whoever looks at another one is told by the same call.
   */
  refresh?: () => void;
}

/** Of a list: how many there are, and those of the page. All of them are there at the moment at which the page is made. */
export interface PageOf<T> {
  count: number;
  things: T[];
}

/** When more nodes than these have changed, all is put in order anew: it would be long in touching each thing of theirs. */
const FEW_NODES = 10;
/** Each is as long as there are things; the one that was not looked at for longest goes. */
const MAX_KEPT = 12;
const IDS_AT_ONCE = 1000;

/** An order, and whether it is another one when nodes are. */
interface Look {
  order: KeptOrder;
  isOfNodes: boolean;
}

export class OrderedThings<T> {
  readonly #options: OrderedThingsOptions<T>;
  readonly #orders = new Map<string, Look>();
  /** What somebody looks at now, also what is not kept, or no more: it is told what changes meanwhile, too. */
  readonly #looks = new Set<Look>();

  constructor(options: OrderedThingsOptions<T>) {
    this.#options = options;
  }

  /** It is new, has changed or is gone, or what it is ordered by has changed elsewhere. */
  touch(id: string): void {
    for (const { order } of this.#all()) order.touch(id);
  }

  /** So much has changed that all is to be put in order anew. */
  forget(): void {
    for (const { order } of this.#all()) order.forget();
  }

  /** These nodes have changed, and with them what says something of them. @param idsOf of what a node has */
  nodesChanged(nodeIds: readonly string[], idsOf: (nodeId: string) => Iterable<string>): void {
    const orders = this.#all().flatMap(({ order, isOfNodes }) => (isOfNodes ? order : []));
    if (nodeIds.length > FEW_NODES) for (const order of orders) order.forget();
    else
      for (const nodeId of nodeIds)
        for (const id of idsOf(nodeId)) for (const order of orders) order.touch(id);
  }

  /** One that is kept comes as often as somebody looks at it besides. */
  #all(): Look[] {
    return [...this.#orders.values(), ...this.#looks];
  }

  /** As things are when it answers, which may be a good while later: all of them are put in order first, when nobody has looked at them so. */
  async page(request: PageRequest, which: Which<T> = {}): Promise<PageOf<T>> {
    const { among, matches, name } = which;
    const { ordering } = request;
    const cut = (ids: readonly string[]) => this.#cut(request, ids);
    if (among !== undefined) return this.#look(await this.#some(ordering, among, matches), cut);
    if (!matches) return this.#look(this.#kept(ordering, {}), cut);
    if (name !== undefined) return this.#look(this.#kept(ordering, which), cut);
    // what is in order already is soon put in order
    return this.#look(this.#kept(ordering, {}), ids =>
      this.#look(
        this.#order(ordering, () => ids, matches),
        cut,
      ),
    );
  }

  async #look<R>(look: Look, use: (ids: readonly string[]) => R | Promise<R>): Promise<R> {
    // several may look at one order
    const own = { ...look };
    this.#looks.add(own);
    try {
      return await look.order.read(use);
    } finally {
      this.#looks.delete(own);
    }
  }

  #cut({ limit, offset }: PageRequest, ids: readonly string[]): PageOf<T> {
    const things = ids.slice(offset, offset + limit).flatMap(id => this.#options.find(id) ?? []);
    return { count: ids.length, things };
  }

  async #some(ordering: Ordering, among: Iterable<string>, matches: Which<T>['matches']): Promise<Look> {
    const ids = new Set<string>();
    for await (const piece of inPieces(among, IDS_AT_ONCE)) for (const id of piece) ids.add(id);
    return this.#order(ordering, () => ids, matches, ids);
  }

  #kept(ordering: Ordering, { matches, name = '' }: Which<T>): Look {
    const { field, descending } = ordering;
    const key = `${descending ? '-' : ''}${field} ${name}`;
    const order = this.#orders.get(key) ?? this.#order(ordering, this.#options.all, matches);
    this.#orders.delete(key);
    this.#orders.set(key, order);
    if (this.#orders.size > MAX_KEPT) this.#orders.delete(this.#orders.keys().next().value!);
    return order;
  }

  /** @param only undefined: whatever is touched may be one of these */
  #order(
    { field, descending }: Ordering,
    all: () => Iterable<string>,
    matches: Which<T>['matches'],
    only?: ReadonlySet<string>,
  ): Look {
    const { find, fields, nodeFields = [], refresh } = this.#options;
    const fieldOf = fields[field];
    if (!fieldOf) throw new Error(`no order by ${field}`);
    const keyOf = (id: string) => {
      const thing = only?.has(id) === false ? undefined : find(id);
      return thing === undefined || (matches && !matches(thing)) ? undefined : fieldOf(thing);
    };
    // nobody says whether what matches does so by its node
    const isOfNodes = matches !== undefined || nodeFields.includes(field);
    return { order: new KeptOrder({ all, keyOf, descending, refresh }), isOfNodes };
  }
}
