import { type ErrorKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { Lock } from '../workflows/context.ts';

export interface LockHolder {
  operationId: string;
  /** Kind of the operation ("backup"), for the error text. */
  kind: string;
}

interface Held extends LockHolder {
  mode: Lock['mode'];
}

/** The refusal of each kind of lock, and the parameter that names the thing in it. */
const BUSY: Record<Lock['kind'], { key: ErrorKey; subject: string }> = {
  domain: { key: 'domain_busy', subject: 'domain' },
  power: { key: 'domain_busy', subject: 'domain' },
  file: { key: 'file_busy', subject: 'file' },
  pool: { key: 'pool_busy', subject: 'pool' },
};

/**
 * What each running operation holds. Nothing waits for a lock: a conflicting start is refused at once and names the
 * holder, so there are no deadlocks. Shared locks go together; an exclusive one goes with nothing.
 */
export class LockTable {
  readonly #held = new Map<string, Held[]>();
  readonly #changed: () => void;

  /** @param changed is called after locks were taken or given back. */
  constructor(changed: () => void = () => {}) {
    this.#changed = changed;
  }

  /**
   * Takes all locks or none.
   * @throws VirtkeepError domain_busy, file_busy or pool_busy, naming the operation that holds it.
   */
  acquire(holder: LockHolder, locks: Lock[]): void {
    for (const lock of locks) {
      const conflict = this.#conflict(holder.operationId, lock);
      if (conflict) {
        const { key, subject } = BUSY[lock.kind];
        const params = { [subject]: lock.id, operation: conflict.operationId, kind: conflict.kind };
        throw new VirtkeepError(key, params);
      }
    }
    for (const lock of locks) {
      const key = keyOf(lock);
      this.#held.set(key, [...(this.#held.get(key) ?? []), { ...holder, mode: lock.mode }]);
    }
    if (locks.length > 0) this.#changed();
  }

  /** Gives back everything that the operation holds. */
  release(operationId: string): void {
    for (const key of [...this.#held.keys()]) this.#drop(key, held => held.operationId === operationId);
    this.#changed();
  }

  /** Gives back some of what the operation holds. */
  giveBack(operationId: string, locks: readonly Lock[]): void {
    for (const lock of locks)
      this.#drop(keyOf(lock), held => held.operationId === operationId && held.mode === lock.mode);
    if (locks.length > 0) this.#changed();
  }

  #drop(key: string, isGone: (held: Held) => boolean): void {
    const rest = this.#held.get(key)?.filter(held => !isGone(held)) ?? [];
    if (rest.length === 0) this.#held.delete(key);
    else this.#held.set(key, rest);
  }

  /** The operation that holds the thing, an exclusive holder first; undefined when none does. */
  holderOf(kind: Lock['kind'], id: string): LockHolder | undefined {
    const holders = this.#held.get(keyOf({ kind, id }));
    return holders?.find(holder => holder.mode === 'exclusive') ?? holders?.[0];
  }

  #conflict(operationId: string, lock: Lock): Held | undefined {
    const others = this.#held.get(keyOf(lock))?.filter(holder => holder.operationId !== operationId);
    return others?.find(holder => lock.mode === 'exclusive' || holder.mode === 'exclusive');
  }
}

function keyOf(lock: Pick<Lock, 'kind' | 'id'>): string {
  return `${lock.kind} ${lock.id}`;
}
