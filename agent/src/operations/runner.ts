import { randomUUID } from 'node:crypto';
import { abortReason, sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { hasKey, isVirtkeepError, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { ExpiringMap } from '@virtkeep/shared/expiring-map';
import { type Entity, EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import {
  type Operation,
  type OperationEvent,
  OperationState,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { isUuid } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import type { Lock, Workflow } from '../workflows/context.ts';
import type { UndoEffect } from '../workflows/effect.ts';
import { ActiveOperation } from './active.ts';
import type { Faults } from './faults.ts';
import { OperationFeed } from './feed.ts';
import { fingerprint, isFingerprintOf } from './fingerprint.ts';
import { type FurtherLocks, OperationHold, type RefuseCopies } from './hold.ts';
import type { Journal, OperationRecord } from './journal.ts';
import { type LockHolder, LockTable } from './locks.ts';
import { Settler, type SettleTimes } from './settle.ts';
import { Slots } from './slots.ts';

export interface RunnerDependencies {
  journal: Journal;
  log: Logger;
  undoEffect: UndoEffect;
  /** Throws when one of these VMs is but a stale copy of another node's; asked of what an operation holds, before its work begins. */
  refuseCopies: RefuseCopies;
  faults: Faults;
  /** Heavy operations at a time, ≥ 1; further ones wait in the phase "queued". */
  concurrentOperations: number;
  /** Heavy operations that may wait; beyond it a start is refused with `overloaded`. Default 1000. */
  maxQueued?: number;
  /** Called when an operation took or gave back its locks; the inventory shows it when it returns. */
  locksChanged?: () => void;
  /** Default: the ends of operations say nothing of it. */
  inventory?: SeenDomains;
  times?: Partial<SettleTimes>;
}

/** What others see of the node's domains. */
export interface SeenDomains {
  /** Looks at these now, as far as it can; does not reject. */
  look(domainIds: readonly string[]): Promise<void>;
  /** In which all is seen that was looked at. */
  readonly revision: bigint;
}

/** A start of an operation. */
export interface StartOptions {
  /** UUID chosen by the caller. */
  id: string;
  kind: string;
  /** The whole request: the same id with the same request is the same operation. */
  request: object;
  /** What it makes or changes; the thing made comes first. */
  entities: Entity[];
  /** Held from the request on, also while it waits for its turn. */
  locks: Lock[];
  /** What it holds besides, as things are. */
  further?: FurtherLocks;
  /** Of the domains that it holds, those that may be stale copies of another node's VM: it does no harm to the VM. Default none. */
  mayBeCopies?: 'all' | readonly string[];
  cancellable: boolean;
  /** Moves much data, so it takes one of the bounded places. Default true. */
  heavy?: boolean;
  workflow: Workflow;
}

const LIST_LIMIT = 10_000;
/** No network holds a packet back for so long: the kernel gives a connection up after a quarter of an hour without an answer. */
const REFUSED_MS = 3_600_000;
const MOST_REFUSED = 100_000;

/**
 * Starts, follows and ends all long work of the agent. What an operation promised in the journal is kept by this run
 * of the agent or by the next: `recover` continues what a crash cut off.
 */
export class OperationRunner {
  readonly #dependencies: RunnerDependencies;
  readonly #active = new Map<string, ActiveOperation>();
  readonly #locks: LockTable;
  readonly #feed: OperationFeed;
  readonly #slots: Slots;
  readonly #settler: Settler;
  /** Ids that who asked for them has given up: what begins them may still be on its way, though not over a restart of this process. */
  readonly #refused = new ExpiringMap<true>({ lifeMs: REFUSED_MS, maxEntries: MOST_REFUSED });
  readonly #closing = new AbortController();
  #draining = false;

  constructor(dependencies: RunnerDependencies) {
    this.#dependencies = dependencies;
    this.#locks = new LockTable(dependencies.locksChanged);
    this.#feed = new OperationFeed(dependencies.journal, this.#active);
    this.#slots = new Slots(dependencies.concurrentOperations, dependencies.maxQueued ?? 1000);
    this.#settler = new Settler(this.#closing.signal, dependencies.times);
  }

  /**
   * Takes up what an earlier run left behind: holds its locks, undoes its effects, ends it as SUCCEEDED when it was
   * committed and as FAILED `interrupted` otherwise. Call it once, before the first start; it returns at once and
   * goes on by itself, as long as it takes (libvirt may be down).
   */
  recover(): void {
    for (const record of this.#dependencies.journal.unsettled()) {
      const operation = this.#adopt(record);
      const holder = { operationId: operation.id, kind: record.message.kind };
      try {
        this.#locks.acquire(holder, record.locks);
      } catch (error) {
        operation.log.error('a lock of an interrupted operation is held twice', { error });
      }
      if (record.message.state !== OperationState.RUNNING) {
        void this.#retryLeftovers(operation);
        continue;
      }
      this.#active.set(operation.id, operation);
      operation.log.warn('operation was interrupted by a stop of the agent', { committed: record.committed });
      void this.#settle(operation, record.committed ? undefined : new VirtkeepError('interrupted'));
    }
  }

  /**
   * The operation that an earlier call with this id and request started, for a start call to answer before it looks
   * at anything that may have changed since; undefined when the id is new.
   * @throws VirtkeepError invalid_uuid, operation_conflict.
   */
  replay(id: string, kind: string, request: object): Operation | undefined {
    if (!isUuid(id)) throw new VirtkeepError('invalid_uuid', { value: id, field: 'operation_id' });
    const record = this.#active.get(id)?.record ?? this.#dependencies.journal.operation(id);
    if (record && !isFingerprintOf(record.fingerprint, kind, request)) {
      throw new VirtkeepError('operation_conflict', { id });
    }
    return record?.message;
  }

  /**
   * Starts an operation, or answers the one that the same call started before.
   * @throws VirtkeepError those of `replay`; draining, overloaded, domain_busy, file_busy, pool_busy,
   *   journal_failed: then nothing was started.
   */
  start(options: StartOptions): Operation {
    const existing = this.replay(options.id, options.kind, options.request);
    if (existing) return existing;
    if (this.#refused.get(options.id)) throw new VirtkeepError('canceled');
    if (this.#draining) throw new VirtkeepError('draining');
    const heavy = options.heavy ?? true;
    if (heavy) this.#slots.assertRoom();
    const waits = heavy && this.#slots.busy;
    const locks = waits ? options.locks : [...options.locks, ...(options.further?.now ?? [])];
    this.#locks.acquire({ operationId: options.id, kind: options.kind }, locks);
    try {
      const record = this.#newRecord(options, locks);
      this.#dependencies.journal.insertOperation(record);
      const operation = this.#adopt(record);
      this.#active.set(options.id, operation);
      this.#feed.changed();
      void this.#run(operation, options, heavy);
      return operation.message;
    } catch (error) {
      this.#locks.release(options.id);
      throw error;
    }
  }

  /**
   * @param refuseUnknown one that is not known is not begun later, either
   * @throws VirtkeepError operation_not_found.
   */
  get(id: string, refuseUnknown = false): Operation {
    const operation = this.#active.get(id)?.message ?? this.#dependencies.journal.operation(id)?.message;
    if (operation) return operation;
    if (refuseUnknown && isUuid(id)) this.#refused.set(id, true);
    throw new VirtkeepError('operation_not_found', { id });
  }

  /** Operations, newest first, with the sequence from which a watch misses nothing. */
  list(runningOnly: boolean): { operations: Operation[]; sequence: number } {
    const sequence = this.#dependencies.journal.lastSequence;
    const running = [...this.#active.values()].map(active => active.message);
    if (runningOnly) return { operations: running.reverse(), sequence };
    const all = this.#dependencies.journal.operations(LIST_LIMIT);
    return { operations: all.map(stored => this.#active.get(stored.id)?.message ?? stored), sequence };
  }

  /** @throws VirtkeepError operation_not_found. See OperationFeed.watch. */
  watch(afterSequence: number, operationId: string, signal: AbortSignal): AsyncIterable<OperationEvent> {
    if (operationId) this.get(operationId);
    return this.#feed.watch(afterSequence, operationId, signal);
  }

  /**
   * Asks an operation to stop and undo what it did; the outcome comes as an event. Idempotent: of one that is being
   * cancelled, or was, it answers its present state.
   * @throws VirtkeepError operation_not_found; not_cancellable when it ended otherwise, is past its point of no
   *   return, or cannot be cancelled at all.
   */
  cancel(id: string): Operation {
    const current = this.get(id);
    if (current.state === OperationState.CANCELED) return current;
    const operation = this.#active.get(id);
    if (operation?.signal.aborted) return current;
    if (!operation || !current.cancellable) {
      const status = operation ? 'past the point where it can be' : stateName(current);
      throw new VirtkeepError('not_cancellable', { id, status });
    }
    operation.log.info('cancel requested');
    operation.abort(new VirtkeepError('canceled'));
    return operation.message;
  }

  /**
   * Takes locks for something short that is no operation (a download); call the result to give them back.
   * @param kind what it is, for the refusals of others
   * @throws VirtkeepError draining, domain_busy, file_busy, pool_busy
   */
  hold(kind: string, locks: Lock[]): () => void {
    if (this.#draining) throw new VirtkeepError('draining');
    const holder = { operationId: randomUUID(), kind };
    this.#locks.acquire(holder, locks);
    return () => this.#locks.release(holder.operationId);
  }

  /** The same for what can wait; undefined while somebody holds one of them, and when no work begins any more. */
  holdWhenFree(kind: string, locks: Lock[]): (() => void) | undefined {
    try {
      return this.hold(kind, locks);
    } catch (error) {
      if (hasKey(error, 'domain_busy', 'file_busy', 'pool_busy', 'draining')) return undefined;
      throw error;
    }
  }

  /** The operation that holds a thing; undefined when none does. */
  holderOf(kind: Lock['kind'], id: string): LockHolder | undefined {
    return this.#locks.holderOf(kind, id);
  }

  /** Effects of ended operations that wait for their next try are tried now (libvirt is back, say). */
  retryNow(): void {
    this.#settler.wake();
  }

  get draining(): boolean {
    return this.#draining;
  }

  get activeCount(): number {
    return this.#active.size;
  }

  /** Takes no new operations from now on. */
  drain(): void {
    this.#draining = true;
  }

  /** Resolves when no operation runs; rejects with the abort reason. */
  async idle(signal: AbortSignal): Promise<void> {
    while (this.#active.size > 0) await sleep(20, signal);
  }

  /** Stops all running operations: they undo what they did and end FAILED `interrupted`. */
  abortAll(): void {
    for (const operation of this.#active.values()) operation.abort(new VirtkeepError('interrupted'));
  }

  /** Ends event streams and all waiting; what is not undone yet stays in the journal for the next run. */
  close(): void {
    this.#draining = true;
    this.#closing.abort(new VirtkeepError('interrupted'));
    this.#feed.close();
  }

  #newRecord(options: StartOptions, locks: Lock[]): OperationRecord {
    const message: Operation = {
      id: options.id,
      kind: options.kind,
      state: OperationState.RUNNING,
      entities: options.entities,
      created: new Date(),
      finished: undefined,
      progress: undefined,
      error: undefined,
      cancellable: options.cancellable,
      warnings: [],
      resultJson: '',
      result: undefined,
      sequence: BigInt(this.#dependencies.journal.nextSequence()),
      inventoryRevision: 0n,
    };
    return {
      message,
      fingerprint: fingerprint(options.kind, options.request),
      locks,
      committed: false,
    };
  }

  #adopt(record: OperationRecord): ActiveOperation {
    const { journal, log, faults, undoEffect } = this.#dependencies;
    return new ActiveOperation(record, { journal, log, faults, undoEffect, changed: this.#feed.changed });
  }

  async #run(operation: ActiveOperation, options: StartOptions, heavy: boolean): Promise<void> {
    const outcome = await this.#work(operation, options, heavy).catch((error: unknown) =>
      this.#failure(operation, error),
    );
    await this.#settle(operation, outcome);
  }

  /** Resolves undefined when the work succeeded, i.e. was committed. */
  async #work(
    operation: ActiveOperation,
    { workflow, locks, further, mayBeCopies = [] }: StartOptions,
    heavy: boolean,
  ): Promise<undefined> {
    const waits = heavy && this.#slots.busy;
    if (waits) operation.progress.begin('queued');
    if (heavy) await this.#slots.take(operation.signal);
    try {
      throwIfAborted(operation.signal);
      const { refuseCopies } = this.#dependencies;
      const held = { locks, further, mayBeCopies };
      const hold = new OperationHold(operation, held, { table: this.#locks, refuseCopies });
      await (waits ? hold.renew() : hold.refuseCopies());
      operation.log.info('operation started');
      await workflow(operation.context(hold));
      if (!operation.committed)
        throw new Error(`the workflow of ${operation.message.kind} ended without a commit`);
    } finally {
      if (heavy) this.#slots.give();
    }
  }

  /** What an error of the workflow means: after the commit a warning, before it the operation's error. */
  #failure(operation: ActiveOperation, error: unknown): VirtkeepError | undefined {
    if (operation.committed) {
      operation.log.warn('error after the commit', { error });
      if (!operation.signal.aborted) operation.warn(reasonOf(error));
      return undefined;
    }
    if (operation.signal.aborted) return abortReason(operation.signal);
    operation.log.error('operation failed', { error });
    return isVirtkeepError(error)
      ? error
      : new VirtkeepError('internal', { request_id: operation.id }, { cause: error });
  }

  /** Undoes, ends the operation durably, gives its locks back; or keeps both for the next run when the agent stops. */
  async #settle(operation: ActiveOperation, outcome: VirtkeepError | undefined): Promise<void> {
    try {
      const failures = await this.#settler.undo(operation);
      for (const { what, reason } of failures) {
        operation.warn(`Clean-up (${what}) is not done yet and is tried again: ${reason}`);
      }
      await this.#dependencies.inventory?.look(domainsOf(operation.record));
      const isSettled = failures.length === 0;
      await this.#settler.end(operation, () => this.#end(operation, outcome, isSettled));
      this.#active.delete(operation.id);
      operation.log.info('operation ended', { state: operation.message.state, error: outcome?.msgKey });
      if (!isSettled) await this.#retryLeftovers(operation);
    } catch (error) {
      if (!this.#closing.signal.aborted) operation.log.error('operation could not be settled', { error });
    }
  }

  /**
   * Ends it and gives its locks back in one go, so that the inventory that its end names shows what it held as free. Nothing may be
   * awaited in between: another operation would take the locks of one that has not ended.
   * @throws VirtkeepError journal_failed; then it has not ended
   */
  #end(operation: ActiveOperation, outcome: VirtkeepError | undefined, isSettled: boolean): void {
    try {
      if (isSettled) this.#locks.release(operation.id);
      operation.end(outcome, this.#dependencies.inventory?.revision ?? 0n);
    } catch (error) {
      if (isSettled)
        this.#locks.acquire(
          { operationId: operation.id, kind: operation.message.kind },
          operation.record.locks,
        );
      throw error;
    }
  }

  /** Tries the effects of an ended operation until they are undone; its locks stay until then. */
  async #retryLeftovers(operation: ActiveOperation): Promise<void> {
    try {
      await this.#settler.undoForever(operation);
      this.#locks.release(operation.id);
    } catch (error) {
      if (!this.#closing.signal.aborted) operation.log.error('clean-up gave up', { error });
    }
  }
}

/** The domains that it makes, changes or holds. */
function domainsOf({ message, locks }: OperationRecord): string[] {
  const named = message.entities.filter(({ entityClass }) => entityClass === EntityClass.DOMAIN);
  const held = locks.filter(
    ({ kind, mode }) => mode === 'exclusive' && (kind === 'domain' || kind === 'power'),
  );
  return [...new Set([...named, ...held].map(({ id }) => id))];
}

function stateName(operation: Operation): string {
  return operation.state.replace('OPERATION_STATE_', '').toLowerCase();
}
