/**
 * What has changed, for the event stream: a ring of the last changes and its listeners. A listener that reconnects
 * names the last change it saw; one that is no longer kept (or of an earlier run of the controller) answers `null`,
 * and the listener must load its lists again.
 */
import { randomBytes } from 'node:crypto';
import type { Principal } from '../../auth/principal.ts';

export interface Change {
  /** `<run>-<sequence>`; the value of SSE's `id:`. */
  id: string;
  /** What kind of thing: task, event, domain, node, data_pool, vdisk, file, scheduled_task */
  kind: string;
  entityId: string;
  action: 'created' | 'changed' | 'removed';
  /** The record as this user sees it; null for what was removed. */
  render: (viewer: Principal) => unknown;
  /** Two users of whom this is the same see the same: it is made once for all of them. */
  sameFor: (viewer: Principal) => string;
}

export interface ChangeInput {
  kind: string;
  entityId: string;
  action: 'created' | 'changed' | 'removed';
  render?: (viewer: Principal) => unknown;
  sameFor?: (viewer: Principal) => string;
}

const KEPT_CHANGES = 2048;

export class ChangeFeed {
  /** Two controllers may have started in the same millisecond. */
  readonly #run = `${Date.now().toString(36)}${randomBytes(3).toString('hex')}`;
  readonly #ring: { sequence: number; change: Change }[] = [];
  readonly #listeners = new Set<(change: Change) => void>();
  #sequence = 0;

  /**
   * Tells every listener; listeners must not throw and must not block. A reader may be told the newer of two changes of the same kind, thing
   * and action alone, so a record says how the thing is, not what has happened to it.
   */
  publish(input: ChangeInput): void {
    this.#sequence += 1;
    const id = `${this.#run}-${this.#sequence}`;
    const sameFor = input.render ? (viewer: Principal) => viewer.id : () => '';
    const change: Change = { render: () => null, sameFor, ...input, id };
    this.#ring.push({ sequence: this.#sequence, change });
    if (this.#ring.length > KEPT_CHANGES) this.#ring.shift();
    for (const listener of this.#listeners) listener(change);
  }

  /** @returns a function that ends the subscription. */
  subscribe(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The changes after this id, or null when they are not all known any more. */
  since(lastId: string): Change[] | null {
    const [run, text] = lastId.split('-');
    const sequence = Number(text);
    if (run !== this.#run || !Number.isInteger(sequence) || sequence > this.#sequence) return null;
    const oldest = this.#ring[0]?.sequence ?? this.#sequence + 1;
    if (sequence < oldest - 1) return null;
    return this.#ring.filter(entry => entry.sequence > sequence).map(entry => entry.change);
  }

  /** The id of the newest change, for a listener that begins now. */
  get lastId(): string {
    return `${this.#run}-${this.#sequence}`;
  }

  get listenerCount(): number {
    return this.#listeners.size;
  }
}
