import { abortReason, sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { Backoff } from '@virtkeep/shared/backoff';
import { reasonOf } from '@virtkeep/shared/errors';
import type { Effect } from '../workflows/effect.ts';
import type { ActiveOperation } from './active.ts';
import type { UndoFailure } from './effects.ts';

export interface SettleTimes {
  /** An operation stays RUNNING (phase "undo") so long while its effects cannot be undone; then it ends anyway. */
  patienceMs: number;
  /** Delay before a second try; doubles up to `maxDelayMs`. */
  minDelayMs: number;
  maxDelayMs: number;
  /** Bound of one undo of one effect, unless it moves data. */
  undoTimeoutMs: number;
  /** The same of one try to thaw a guest, which waits until it answers: what comes behind it then goes on. */
  thawTimeoutMs: number;
}

const DEFAULT_TIMES: SettleTimes = {
  patienceMs: 60_000,
  minDelayMs: 1_000,
  maxDelayMs: 300_000,
  undoTimeoutMs: 6 * 3_600_000,
  thawTimeoutMs: 120_000,
};

/**
 * What an operation does not end before, however long it takes: a VM runs from the archive until its data are pulled out of it, and the
 * controller keeps an archive from being removed only as long as the task runs that reads it.
 */
const NEVER_LEFT: readonly Effect['type'][] = ['instant_pull'];

/** What moves a VM's data, which may take days: a try that was cut off would begin anew, and never end. */
const MOVES_DATA: readonly Effect['type'][] = [
  'automatic_state',
  'removed_state',
  'loan',
  'changed_disks',
  'instant_pull',
];

const FROZEN_GUEST: Effect['type'] = 'frozen_guest';

/**
 * The end of an operation: its effects are undone and its final state is written. The same for an operation that has
 * just ended and for one that an earlier run of the agent left behind. All of it stops when the agent closes.
 */
export class Settler {
  readonly #times: SettleTimes;
  readonly #closing: AbortSignal;
  #wake = new AbortController();

  constructor(closing: AbortSignal, times: Partial<SettleTimes> = {}) {
    this.#closing = closing;
    this.#times = { ...DEFAULT_TIMES, ...times };
  }

  /** Whoever waits for the next try tries now. */
  wake(): void {
    const waiting = this.#wake;
    this.#wake = new AbortController();
    waiting.abort();
  }

  /** Undoes what is to be undone, trying again for up to `patienceMs`, or longer for what is never left; answers what is left then. */
  async undo(operation: ActiveOperation): Promise<UndoFailure[]> {
    const deadlineMs = performance.now() + this.#times.patienceMs;
    const backoff = this.#backoff();
    for (;;) {
      const failures = await this.#tryOnce(operation);
      const isBound = failures.some(({ what }) => (NEVER_LEFT as readonly string[]).includes(what));
      const leftMs = isBound ? Number.POSITIVE_INFINITY : deadlineMs - performance.now();
      if (failures.length === 0 || leftMs <= 0) return failures;
      operation.progress.message(`${failures[0]!.what}: ${failures[0]!.reason}`);
      await this.#pause(Math.min(backoff.next(), leftMs));
    }
  }

  /** Tries until nothing is left. */
  async undoForever(operation: ActiveOperation): Promise<void> {
    const backoff = this.#backoff();
    for (;;) {
      await this.#pause(backoff.next());
      const failures = await this.#tryOnce(operation);
      if (failures.length === 0) return;
      // a guest that goes on with frozen file systems hangs until it is asked
      if (failures.some(({ what }) => what === FROZEN_GUEST)) backoff.reset();
    }
  }

  /**
   * Writes the final state, again and again while the journal cannot be written.
   * @param write throws when it cannot be
   */
  async end(operation: ActiveOperation, write: () => void): Promise<void> {
    const backoff = this.#backoff();
    for (;;) {
      try {
        throwIfAborted(this.#closing);
        return write();
      } catch (error) {
        operation.log.error('the end of the operation cannot be written', { reason: reasonOf(error) });
        await this.#pause(backoff.next());
      }
    }
  }

  async #tryOnce(operation: ActiveOperation): Promise<UndoFailure[]> {
    const signalOf = ({ type }: Effect) => {
      if (MOVES_DATA.includes(type)) return this.#closing;
      const { undoTimeoutMs, thawTimeoutMs } = this.#times;
      const timeoutMs = type === FROZEN_GUEST ? thawTimeoutMs : undoTimeoutMs;
      return AbortSignal.any([this.#closing, AbortSignal.timeout(timeoutMs)]);
    };
    const failures = await operation.effects
      .undoAll(signalOf, () => operation.windDown())
      .catch((error: unknown) => [{ what: 'journal', reason: reasonOf(error) }]);
    if (failures.length > 0) throwIfAborted(this.#closing);
    return failures;
  }

  /** Waits, but not past a wake; rejects when the agent closes. */
  async #pause(delayMs: number): Promise<void> {
    await sleep(delayMs, AbortSignal.any([this.#closing, this.#wake.signal])).catch(() => {});
    if (this.#closing.aborted) throw abortReason(this.#closing);
  }

  #backoff(): Backoff {
    return Backoff.steady(this.#times.minDelayMs, this.#times.maxDelayMs);
  }
}
