import { orAborted } from '@virtkeep/shared/abort';
import type { InventoryEvent } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';

/** More waiting changes than that are replaced by one `full` event: a reader that slow is better served by it. */
const MAX_PENDING = 10_000;

type Change = InventoryEvent['event'];

interface Pending {
  change: Change;
  /** Revision of the first change of the thing that was not read. */
  since: bigint;
}

interface Reader {
  /** Newest change per thing, the thing that has waited longest first. */
  pending: Map<string, Pending>;
  resync: boolean;
  wake: PromiseWithResolvers<void>;
}

/**
 * Hands changes to any number of readers; each gets the newest state of a thing, not every state in between. Each event says up to
 * which revision its reader has been told everything.
 */
export class InventoryFeed {
  readonly #full: () => Change;
  readonly #newest: () => bigint;
  readonly #readers = new Set<Reader>();

  /**
   * @param full everything
   * @param newest revision of the newest change; 0 while what is known is not everything yet
   */
  constructor(full: () => Change, newest: () => bigint) {
    this.#full = full;
    this.#newest = newest;
  }

  /** @param key names the thing; a later change of it takes the place of one that was not read yet */
  publish(key: string, change: Change, revision: bigint): void {
    for (const reader of this.#readers) {
      const since = reader.pending.get(key)?.since ?? revision;
      reader.pending.set(key, { change, since });
      if (reader.pending.size > MAX_PENDING) {
        reader.pending.clear();
        reader.resync = true;
      }
      reader.wake.resolve();
    }
  }

  /** Every reader gets a `full` event next. */
  resync(): void {
    for (const reader of this.#readers) {
      reader.resync = true;
      reader.wake.resolve();
    }
  }

  /** One `full` event, then changes for ever. Rejects with the abort reason. */
  async *read(signal: AbortSignal): AsyncGenerator<InventoryEvent> {
    const reader: Reader = { pending: new Map(), resync: true, wake: Promise.withResolvers() };
    this.#readers.add(reader);
    try {
      for (;;) {
        if (reader.resync) {
          reader.resync = false;
          reader.pending.clear();
          yield { event: this.#full(), revision: this.#revisionSentTo(reader) };
        }
        for (const [key, { change }] of reader.pending) {
          reader.pending.delete(key);
          yield { event: change, revision: this.#revisionSentTo(reader) };
          if (reader.resync) break;
        }
        if (reader.pending.size > 0 || reader.resync) continue;
        reader.wake = Promise.withResolvers();
        await orAborted(reader.wake.promise, signal);
      }
    } finally {
      this.#readers.delete(reader);
    }
  }

  /** A thing that changed again while it waited keeps its place, so what comes first is what has waited longest. */
  #revisionSentTo({ pending }: Reader): bigint {
    const newest = this.#newest();
    const [first] = pending.values();
    return newest === 0n || first === undefined ? newest : first.since - 1n;
  }
}
