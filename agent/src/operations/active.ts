import { throwIfAborted } from '@virtkeep/shared/abort';
import { reasonOf, type VirtkeepError } from '@virtkeep/shared/errors';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { toErrorMessage } from '@virtkeep/shared/grpc-status';
import type { Logger } from '@virtkeep/shared/log';
import { type Result, resultFields } from '@virtkeep/shared/operation-result';
import type { Hold, Lock, OperationContext } from '../workflows/context.ts';
import type { UndoEffect } from '../workflows/effect.ts';
import { JournaledEffects } from './effects.ts';
import type { Faults } from './faults.ts';
import type { Journal, OperationRecord } from './journal.ts';
import { ProgressMeter } from './progress.ts';

export interface ActiveDependencies {
  journal: Journal;
  log: Logger;
  faults: Faults;
  undoEffect: UndoEffect;
  /** Called after every change of the message. */
  changed(): void;
}

/**
 * One operation that has not ended, and the context its workflow sees. The message is replaced, never changed, so
 * whoever holds one holds a consistent picture of that moment.
 */
export class ActiveOperation {
  readonly progress: ProgressMeter;
  readonly effects: JournaledEffects;
  readonly log: Logger;
  readonly #abort = new AbortController();
  readonly #dependencies: ActiveDependencies;
  #record: OperationRecord;
  #middle: ((signal: AbortSignal) => Promise<void>) | undefined;
  #middleArmed = false;

  constructor(record: OperationRecord, dependencies: ActiveDependencies) {
    const { id, kind } = record.message;
    this.#record = record;
    this.#dependencies = dependencies;
    this.log = dependencies.log.child({ operation: id, kind });
    this.progress = new ProgressMeter(() => this.#publish({ progress: this.progress.snapshot() }));
    this.effects = new JournaledEffects(dependencies.journal, id, dependencies.undoEffect, {
      log: this.log,
      warn: text => this.warn(text),
    });
    if (record.committed) this.effects.markCommitted();
  }

  get record(): OperationRecord {
    return this.#record;
  }

  get message(): Operation {
    return this.#record.message;
  }

  get id(): string {
    return this.message.id;
  }

  get committed(): boolean {
    return this.#record.committed;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Asks the workflow to stop; its error will be `reason`. Only the first reason counts. */
  abort(reason: VirtkeepError): void {
    this.#publish({ cancellable: false });
    this.#abort.abort(reason);
  }

  /** Told to the user with its end, and to the log: of an operation without a task nobody reads the end. */
  warn(text: string): void {
    this.log.warn(text);
    this.#publish({ warnings: [...this.message.warnings, text] });
  }

  /** These are the locks that it holds now, also after a crash. @throws VirtkeepError journal_failed */
  holds(locks: readonly Lock[]): void {
    const record = { ...this.#record, locks: [...locks] };
    this.#dependencies.journal.updateOperation(record);
    this.#record = record;
  }

  /** The work is over, its effects are being undone. */
  windDown(): void {
    if (this.progress.phase === 'clean_up') return;
    if (this.message.cancellable) this.#publish({ cancellable: false });
    this.progress.begin('clean_up');
  }

  /**
   * Durably ends the operation.
   * @param inventoryRevision in which the domains that it touched are seen
   * @throws VirtkeepError journal_failed; then it has not ended
   */
  end(outcome: VirtkeepError | undefined, inventoryRevision: bigint): void {
    const { journal } = this.#dependencies;
    this.progress.stop();
    const message: Operation = {
      ...this.message,
      state: stateOf(outcome),
      error: outcome && toErrorMessage(outcome),
      finished: new Date(),
      cancellable: false,
      progress: this.progress.snapshot(),
      inventoryRevision,
      sequence: BigInt(journal.nextSequence()),
    };
    journal.updateOperation({ ...this.#record, message });
    this.#record = { ...this.#record, message };
    this.#dependencies.changed();
  }

  context(hold: Hold): OperationContext {
    return {
      id: this.id,
      signal: this.signal,
      log: this.log,
      effects: this.effects,
      progress: {
        total: bytes => this.progress.total(bytes),
        done: bytes => {
          if (this.#middleArmed && bytes > 0) this.#reachMiddle();
          this.progress.done(bytes);
        },
        message: text => this.progress.message(text),
      },
      hold,
      step: (name, work) => this.#step(name, work),
      warn: text => this.warn(text),
      commit: result => this.#commit(result),
    };
  }

  async #step<T>(name: string, work: () => Promise<T>): Promise<T> {
    const { faults } = this.#dependencies;
    const startedMs = performance.now();
    throwIfAborted(this.signal);
    this.progress.begin(name);
    await faults.reach(this.message.kind, name, 'before', this.signal);
    this.#middleArmed = faults.active;
    const result = await work();
    this.#middleArmed = false;
    const owedWait = this.#middle;
    this.#middle = undefined;
    await owedWait?.(this.signal);
    await faults.reach(this.message.kind, name, 'after', this.signal);
    this.log.debug('step done', { step: name, durationMs: Math.round(performance.now() - startedMs) });
    return result;
  }

  #reachMiddle(): void {
    this.#middleArmed = false;
    this.#middle = this.#dependencies.faults.middle(this.message.kind, this.progress.phase);
  }

  #commit(result: Result | undefined): void {
    throwIfAborted(this.signal);
    const { journal } = this.#dependencies;
    const message: Operation = {
      ...this.message,
      cancellable: false,
      ...resultFields(result),
      sequence: BigInt(journal.nextSequence()),
    };
    const record = { ...this.#record, message, committed: true };
    journal.commitOperation(record);
    this.#record = record;
    this.effects.markCommitted();
    this.#dependencies.changed();
  }

  /** Progress is only told, not stored: an event lost because the journal cannot number it is no loss. */
  #publish(change: Partial<Operation>): void {
    if (this.message.state !== OperationState.RUNNING) return;
    let sequence = this.message.sequence;
    try {
      sequence = BigInt(this.#dependencies.journal.nextSequence());
    } catch (error) {
      this.log.error('the journal gives no sequence for an event', { reason: reasonOf(error) });
    }
    this.#record = { ...this.#record, message: { ...this.message, ...change, sequence } };
    this.#dependencies.changed();
  }
}

function stateOf(outcome: VirtkeepError | undefined): OperationState {
  if (!outcome) return OperationState.SUCCEEDED;
  return outcome.msgKey === 'canceled' ? OperationState.CANCELED : OperationState.FAILED;
}
