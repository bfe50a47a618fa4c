/**
 * What has changed, for the event stream: a ring of the last changes and its listeners, who are told of what came together at once.
 * A listener that reconnects names the last change it saw; one that is no longer kept (or of an earlier run of the controller) answers
 * `null`, and the listener must load its lists again.
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
  /** The record as this user sees it when it is told; null for what was removed, also since. */
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
/** Changes within this time are told as one: each telling is a record of TLS and a call of the kernel, for each listener, ms. */
const TOGETHER_MS = 20;
/** So many are told without waiting for more: nobody is kept waiting for the texts of all. */
const MAX_TOGETHER = 64;

/** Called with changes in their order, of which none replaces another; must not throw and must not block. */
type Listener = (changes: readonly Change[]) => void;

/** All users see the same. */
export const forAll = () => '';
/** All users of a role see the same. */
export const byRole = ({ role }: Principal) => role;
const byUser = ({ id }: Principal) => id;
const nothing = () => null;

export class ChangeFeed {
  /** Two controllers may have started in the same millisecond. */
  readonly #run = `${Date.now().toString(36)}${randomBytes(3).toString('hex')}`;
  readonly #ring: Change[] = [];
  readonly #listeners = new Set<Listener>();
  /** What the listeners have not been told yet. */
  #untold: Change[] = [];
  #timer: NodeJS.Timeout | undefined;
  #sequence = 0;

  /**
   * Tells every listener, soon. A reader may be told the newer of two changes of the same kind, thing and action alone, and the record is
   * made when it is told: a record says how the thing is, not what has happened to it, and of what was created or changed it is null where
   * that is gone by then.
   */
  publish(input: ChangeInput): void {
    this.#sequence += 1;
    const { kind, entityId, action, render = nothing, sameFor = input.render ? byUser : forAll } = input;
    const change = { id: this.lastId, kind, entityId, action, render, sameFor };
    this.#ring.push(change);
    if (this.#ring.length > KEPT_CHANGES) this.#ring.shift();
    if (this.#listeners.size === 0) return;
    this.#untold.push(change);
    if (this.#untold.length >= MAX_TOGETHER) this.tell();
    else this.#timer ??= setTimeout(() => this.tell(), TOGETHER_MS).unref();
  }

  /** Tells the listeners now of what they have not been told yet. */
  tell(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#untold.length === 0) return;
    const changes = newestOfEach(this.#untold);
    this.#untold = [];
    for (const listener of this.#listeners) listener(changes);
  }

  /** @returns a function that ends the subscription. What was published before is not told to this one. */
  subscribe(listener: Listener): () => void {
    this.tell();
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The changes after this id that no later one replaces, or null when they are not all known any more. */
  since(lastId: string): Change[] | null {
    const [run, text] = lastId.split('-');
    const sequence = Number(text);
    if (run !== this.#run || !Number.isInteger(sequence) || sequence > this.#sequence) return null;
    const missed = this.#sequence - sequence;
    if (missed > this.#ring.length) return null;
    return newestOfEach(this.#ring.slice(this.#ring.length - missed));
  }

  /** The id of the newest change, for a listener that begins now. */
  get lastId(): string {
    return `${this.#run}-${this.#sequence}`;
  }

  get listenerCount(): number {
    return this.#listeners.size;
  }
}

/** Created, changed and removed do not replace one another; of two of the same kind the newer says all. */
export const subjectOf = ({ kind, entityId, action }: Change) => `${kind} ${entityId} ${action}`;

/** Those that no later one replaces, in their order. */
function newestOfEach(changes: readonly Change[]): Change[] {
  const newest = new Map(changes.map(change => [subjectOf(change), change]));
  return changes.filter(change => newest.get(subjectOf(change)) === change);
}
