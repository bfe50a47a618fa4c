import { orAborted, throwIfAborted } from '@virtkeep/shared/abort';
import type { Hold, Lock } from '../workflows/context.ts';
import type { ActiveOperation } from './active.ts';
import type { LockTable } from './locks.ts';

/**
 * Locks that depend on the present state (for example whether a VM runs). An operation that waits for its turn does not hold
 * them meanwhile, and neither does long work that needs none of them: the state may change in that time.
 */
export interface FurtherLocks {
  /** Those by the state at the request: an operation that starts at once takes them with the others. */
  now: Lock[];
  /** Gives them anew when a waiting operation gets its turn, and after long work. */
  again: () => Promise<Lock[]>;
}

export interface HoldOptions {
  /** Held whatever happens. */
  locks: readonly Lock[];
  further?: FurtherLocks | undefined;
  /** Of the domains that it holds, those that may be stale copies of another node's VM: it does no harm to the VM. */
  mayBeCopies: 'all' | readonly string[];
}

/** Throws when one of these VMs is but a stale copy of another node's. */
export type RefuseCopies = (domainIds: readonly string[], signal: AbortSignal) => Promise<void>;

/** The further locks of a running operation. The journal's record says the same as the table, so that recovery holds them too. */
export class OperationHold implements Hold {
  readonly #operation: ActiveOperation;
  readonly #options: HoldOptions;
  readonly #table: LockTable;
  readonly #refuseCopies: RefuseCopies;

  constructor(
    operation: ActiveOperation,
    options: HoldOptions,
    { table, refuseCopies }: { table: LockTable; refuseCopies: RefuseCopies },
  ) {
    this.#operation = operation;
    this.#options = options;
    this.#table = table;
    this.#refuseCopies = refuseCopies;
  }

  has(lock: Lock): boolean {
    return this.#operation.record.locks.some(held => covers(held, lock));
  }

  loosen(): void {
    const { id, record } = this.#operation;
    const { locks } = this.#options;
    const loose = record.locks.filter(lock => !locks.some(kept => covers(kept, lock)));
    if (loose.length === 0) return;
    // a record that named what another operation took by then would keep a crashed one from getting any of its locks back
    this.#operation.holds(locks);
    this.#table.giveBack(id, loose);
  }

  async renew(): Promise<void> {
    const { further } = this.#options;
    if (further) await this.#take(further);
    await this.refuseCopies();
  }

  /** @throws VirtkeepError that says which node has the VM; canceled */
  async refuseCopies(): Promise<void> {
    const { record, signal } = this.#operation;
    const { mayBeCopies } = this.#options;
    if (mayBeCopies === 'all') return;
    const held = record.locks.filter(({ kind }) => kind === 'domain' || kind === 'power');
    const ids = new Set(held.map(({ id }) => id).filter(id => !mayBeCopies.includes(id)));
    if (ids.size > 0) await this.#refuseCopies([...ids], signal);
    throwIfAborted(signal);
  }

  async #take({ again }: FurtherLocks): Promise<void> {
    const { id, message, signal } = this.#operation;
    const desired = await orAborted(again(), signal);
    throwIfAborted(signal);
    const missing = desired.filter(lock => !this.has(lock));
    if (missing.length === 0) return;
    this.#table.acquire({ operationId: id, kind: message.kind }, missing);
    this.#operation.holds([...this.#operation.record.locks, ...missing]);
  }
}

function covers(held: Lock, { kind, id, mode }: Lock): boolean {
  return held.kind === kind && held.id === id && (held.mode === mode || held.mode === 'exclusive');
}
