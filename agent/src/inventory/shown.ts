import { isDeepStrictEqual } from 'node:util';

type Codec<T> = { encode(message: T): { finish(): Uint8Array } };

export interface ChangeListener<T> {
  /** @param revision that of the change */
  changed(message: T, revision: bigint): void;
  removed(id: string, revision: bigint): void;
}

/** A thing, and how its message is made. */
export interface Source<T> {
  id: string;
  /** All that the message is made of: while each is the very same as before, so is the message. */
  inputs: readonly unknown[];
  render(): T;
}

interface Entry<T> {
  inputs: readonly unknown[];
  message: T;
  /** Without its revision. */
  bytes: Uint8Array;
}

/** What messages look like on the wire, by the message: nobody changes one that is shown. */
const encodedForms = new WeakMap<object, Uint8Array>();

/** The bytes of a message that is shown, or was a moment ago; undefined for any other. */
export const encodedForm = (message: object): Uint8Array | undefined => encodedForms.get(message);

/** The messages that readers know, by id; tells what a new set changes, and makes only those messages anew that may be different. */
export class Shown<T extends { id: string; name: string; revision?: bigint }> {
  readonly #codec: Codec<T>;
  readonly #revisions: { next(): bigint };
  readonly #listener: ChangeListener<T>;
  readonly #entries = new Map<string, Entry<T>>();
  /** By name; undefined when something is different since. */
  #sorted: readonly T[] | undefined;

  constructor(codec: Codec<T>, revisions: { next(): bigint }, listener: ChangeListener<T>) {
    this.#codec = codec;
    this.#revisions = revisions;
    this.#listener = listener;
  }

  get(id: string): T | undefined {
    return this.#entries.get(id)?.message;
  }

  /** All, by name. */
  all(): T[] {
    this.#sorted ??= [...this.#entries.values()].map(entry => entry.message).sort(byName);
    return [...this.#sorted];
  }

  /** All, in any order. */
  *values(): Generator<T> {
    for (const { message } of this.#entries.values()) yield message;
  }

  /** Takes this set in place of the old one. */
  replace(sources: readonly Source<T>[]): void {
    const present = new Set(sources.map(({ id }) => id));
    for (const id of [...this.#entries.keys()]) {
      if (present.has(id)) continue;
      this.#entries.delete(id);
      this.#sorted = undefined;
      this.#listener.removed(id, this.#revisions.next());
    }
    for (const source of sources) this.#take(source);
  }

  /** Messages are equal when their bytes on the wire are, but for their revision, which is given here. */
  #take({ id, inputs, render }: Source<T>): void {
    const old = this.#entries.get(id);
    if (old && areTheSame(old.inputs, inputs)) return;
    const message = render();
    const bytes = this.#codec.encode(message).finish();
    if (old && Buffer.compare(old.bytes, bytes) === 0) {
      this.#entries.set(id, { ...old, inputs });
      return;
    }
    const revision = this.#revisions.next();
    if (message.revision !== undefined) message.revision = revision;
    encodedForms.set(message, this.#codec.encode(message).finish());
    this.#entries.set(id, { inputs, message, bytes });
    this.#sorted = undefined;
    this.#listener.changed(message, revision);
  }
}

/** What was read anew and is no different stays the one that was read before, so that nothing is made of it again. */
export function keepIfEqual<T>(before: T | undefined, now: T): T {
  return before !== undefined && isDeepStrictEqual(before, now) ? before : now;
}

function areTheSame(before: readonly unknown[], now: readonly unknown[]): boolean {
  return before.length === now.length && before.every((input, index) => Object.is(input, now[index]));
}

function byName(a: { name: string; id: string }, b: { name: string; id: string }): number {
  if (a.name === b.name) return a.id < b.id ? -1 : 1;
  return a.name < b.name ? -1 : 1;
}
