import { orAborted } from '@virtkeep/shared/abort';
import {
  type Operation,
  type OperationEvent,
  OperationState,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { ActiveOperation } from './active.ts';
import type { Journal } from './journal.ts';

/** Ended operations read from the journal at once while a watcher catches up. */
const CATCH_UP_LIMIT = 500;

/**
 * The event streams. No list of events is kept: an event is the state of an operation under the sequence of its last
 * change, so a watcher that was away, or is slow, gets the newest state of each operation that changed since, in
 * order, and no queue can grow. Ends are never lost: they stand in the journal.
 */
export class OperationFeed {
  readonly #journal: Journal;
  readonly #active: ReadonlyMap<string, ActiveOperation>;
  #changed = Promise.withResolvers<void>();
  #closed = false;

  constructor(journal: Journal, active: ReadonlyMap<string, ActiveOperation>) {
    this.#journal = journal;
    this.#active = active;
  }

  /** Some operation changed: wakes all watchers. */
  changed = (): void => {
    const { resolve } = this.#changed;
    this.#changed = Promise.withResolvers<void>();
    resolve();
  };

  /** Ends all streams after what they have not sent yet. */
  close(): void {
    this.#closed = true;
    this.changed();
  }

  /**
   * Events after `afterSequence`, of all operations or of one (the stream then ends with the operation). A sequence
   * from the future (the journal was lost) counts as 0.
   */
  async *watch(
    afterSequence: number,
    operationId: string,
    signal: AbortSignal,
  ): AsyncIterable<OperationEvent> {
    let cursor = afterSequence > this.#journal.lastSequence ? 0 : afterSequence;
    for (;;) {
      const next = this.#changed.promise;
      const batch = operationId ? this.#oneSince(operationId, cursor) : this.#allSince(cursor);
      for (const operation of batch) {
        yield { sequence: operation.sequence, operation };
        cursor = Number(operation.sequence);
      }
      const newest = operationId ? (batch.at(-1) ?? this.#find(operationId)) : undefined;
      if (newest && newest.state !== OperationState.RUNNING) return;
      if (batch.length > 0) continue;
      if (this.#closed) return;
      await orAborted(next, signal);
    }
  }

  #find(id: string): Operation | undefined {
    return this.#active.get(id)?.message ?? this.#journal.operation(id)?.message;
  }

  #oneSince(id: string, cursor: number): Operation[] {
    const operation = this.#find(id);
    return operation && Number(operation.sequence) > cursor ? [operation] : [];
  }

  #allSince(cursor: number): Operation[] {
    const ended = this.#journal.endedAfter(cursor, CATCH_UP_LIMIT);
    // What comes after a full batch of ended ones must wait for the next batch, or the cursor would jump over some.
    const lastSequence =
      ended.length < CATCH_UP_LIMIT ? Number.POSITIVE_INFINITY : Number(ended.at(-1)!.sequence);
    const running = [...this.#active.values()]
      .map(active => active.message)
      .filter(
        ({ state, sequence }) =>
          state === OperationState.RUNNING && Number(sequence) > cursor && Number(sequence) < lastSequence,
      );
    return [...ended, ...running].sort((a, b) => Number(a.sequence - b.sequence));
  }
}
