/**
 * What a workflow may do besides its own work: name its steps, report progress, and declare its side effects.
 *
 * A workflow is a recipe: named steps from top to bottom. Before a side effect happens it is declared with
 * `effects.begin`, which writes it durably to the journal; from then on it will be undone, by the running agent or by
 * the next one after a crash, through the same function (`undoEffect` in recover.ts). So undo code exists once, and it
 * is idempotent: it must succeed when the effect never happened, happened in part, or was undone before. In which order
 * effects are undone, and which of them wait while another could not be, stands in `operations/undo-order.ts`.
 */
import type { Logger } from '@virtkeep/shared/log';
import type { Result } from '@virtkeep/shared/operation-result';
import type { Effects } from './effect.ts';

export interface ProgressReporter {
  /** Bytes the current step will move; 0 when unknown. */
  total(bytes: number): void;
  /** Bytes moved so far in the current step; may be called thousands of times a second. */
  done(bytes: number): void;
  message(text: string): void;
}

/** The part of what an operation holds that depends on how things are: the power of a VM while it is off. */
export interface Hold {
  /** Whether that is held now, with what does not depend on how things are. */
  has(lock: Lock): boolean;
  /**
   * Gives it back, for long work that does without. Before anything that needs it comes `renew`.
   * @throws VirtkeepError journal_failed
   */
  loosen(): void;
  /**
   * Takes it as things are now, and refuses a VM that is a stale copy of another node's by now: an answer of hours ago need not be
   * true any more.
   * @throws VirtkeepError domain_busy and its like when somebody has what is needed now; what says which node has the VM;
   *   journal_failed, canceled
   */
  renew(): Promise<void>;
}

export interface OperationContext {
  /** UUID of the operation. */
  readonly id: string;
  /** Fires on cancel and on a forced shutdown; undo runs under signals of its own. */
  readonly signal: AbortSignal;
  readonly log: Logger;
  readonly effects: Effects;
  readonly progress: ProgressReporter;
  readonly hold: Hold;
  /**
   * Runs one named step: the name becomes the progress phase, a cancel is noticed before it, and faults can be
   * injected before and after it by the tests (`<kind>.<name>.before`, `<kind>.<name>.after`).
   */
  step<T>(name: string, work: () => Promise<T>): Promise<T>;
  /** Something the user should know although the operation succeeds. */
  warn(text: string): void;
  /**
   * The point of no return: stores the result durably and drops the `failure` effects in one transaction. After it a
   * cancel is refused, and a crash ends as success once the `always` effects are undone.
   * @param result of the operation's kind; absent for a kind that tells nothing
   */
  commit(result?: Result): void;
}

/** A workflow: resolves after `commit`, or throws a VirtkeepError. */
export type Workflow = (context: OperationContext) => Promise<void>;

/** What an operation holds while it runs; a conflicting start is refused at once with domain_busy or file_busy. */
export interface Lock {
  /** `domain` is its disks and definition, `power` whether it runs: a VM may be shut down while its backup runs. */
  kind: 'domain' | 'power' | 'file' | 'pool';
  /** Domain or pool UUID, or absolute path of the file. */
  id: string;
  mode: 'shared' | 'exclusive';
}
