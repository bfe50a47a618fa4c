import { orAborted } from '@virtkeep/shared/abort';
import type { InventoryEvent } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';

/** More waiting changes than that are replaced by one `full` event: a reader that slow is better served by it. */
const MAX_PENDING = 10_000;

interface Reader {
  /** Newest event per thing, oldest thing first. */
  pending: Map<string, InventoryEvent>;
  resync: boolean;
  wake: PromiseWithResolvers<void>;
}

/** Hands changes to any number of readers; each gets the newest state of a thing, not every state in between. */
export class InventoryFeed {
  readonly #full: () => InventoryEvent;
  readonly #readers = new Set<Reader>();

  constructor(full: () => InventoryEvent) {
    this.#full = full;
  }

  /** @param key names the thing; a later event of it replaces one that was not read yet */
  publish(key: string, event: InventoryEvent): void {
    for (const reader of this.#readers) {
      reader.pending.delete(key);
      reader.pending.set(key, event);
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
          yield this.#full();
        }
        for (const [key, event] of reader.pending) {
          reader.pending.delete(key);
          yield event;
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
}
