type Codec<T> = { encode(message: T): { finish(): Uint8Array } };
type Told<T> = { changed(message: T): void; removed(id: string): void };

/** What messages look like on the wire, by the message: nobody changes one that is shown. */
const encodedForms = new WeakMap<object, Uint8Array>();

/** The bytes of a message that is shown, or was a moment ago; undefined for any other. */
export const encodedForm = (message: object): Uint8Array | undefined => encodedForms.get(message);

/** The messages that readers know, by id; tells what a new set changes. */
export class Shown<T extends { id: string; name: string; revision?: bigint }> {
  readonly #codec: Codec<T>;
  readonly #told: Told<T>;
  readonly #known = new Map<string, { message: T; bytes: Uint8Array }>();
  /** Begins above what an agent before this one gave. */
  #revision = BigInt(Date.now()) * 1000n;
  /** By name; undefined when something is different since. */
  #sorted: readonly T[] | undefined;

  constructor(codec: Codec<T>, told: Told<T>) {
    this.#codec = codec;
    this.#told = told;
  }

  get(id: string): T | undefined {
    return this.#known.get(id)?.message;
  }

  /** All, by name. */
  all(): T[] {
    this.#sorted ??= [...this.#known.values()].map(known => known.message).sort(byName);
    return [...this.#sorted];
  }

  /**
   * Takes this set in place of the old one. Messages are equal when their bytes on the wire are, but for their revision, which
   * is given here.
   */
  replace(messages: T[]): void {
    const present = new Set(messages.map(message => message.id));
    for (const id of [...this.#known.keys()]) {
      if (present.has(id)) continue;
      this.#known.delete(id);
      this.#sorted = undefined;
      this.#told.removed(id);
    }
    for (const message of messages) {
      const bytes = this.#codec.encode(message).finish();
      const old = this.#known.get(message.id);
      if (old && Buffer.compare(old.bytes, bytes) === 0) continue;
      if (message.revision !== undefined) message.revision = this.#revision += 1n;
      encodedForms.set(message, this.#codec.encode(message).finish());
      this.#known.set(message.id, { message, bytes });
      this.#sorted = undefined;
      this.#told.changed(message);
    }
  }
}

function byName(a: { name: string; id: string }, b: { name: string; id: string }): number {
  if (a.name === b.name) return a.id < b.id ? -1 : 1;
  return a.name < b.name ? -1 : 1;
}
