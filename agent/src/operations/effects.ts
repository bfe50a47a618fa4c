import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import type { Effect, EffectHandle, Effects, UndoWhen } from '../workflows/context.ts';
import type { Journal } from './journal.ts';

/**
 * Undoes one effect. Idempotent: succeeds when the effect never happened, happened in part, or was undone before.
 * Rejects when it could not be undone; it is then tried again later.
 */
export type UndoEffect = (effect: Effect, signal: AbortSignal) => Promise<void>;

export interface UndoFailure {
  /** Type of the effect, or "journal". */
  what: string;
  reason: string;
}

/**
 * The side effects of one operation. The journal alone holds the list, so that what a running agent undoes and what
 * the next one undoes after a crash are the same by construction.
 */
export class JournaledEffects implements Effects {
  readonly #journal: Journal;
  readonly #operationId: string;
  readonly #undoEffect: UndoEffect;
  readonly #log: Logger;
  #committed = false;

  constructor(journal: Journal, operationId: string, undoEffect: UndoEffect, log: Logger) {
    this.#journal = journal;
    this.#operationId = operationId;
    this.#undoEffect = undoEffect;
    this.#log = log;
  }

  begin(effect: Effect, when: UndoWhen): EffectHandle {
    if (this.#committed && when === 'failure') {
      const cause = new Error(
        `the effect ${effect.type} was declared as undone on failure, after the commit`,
      );
      throw new VirtkeepError('internal', { request_id: this.#operationId }, { cause });
    }
    const effectId = this.#journal.addEffect(this.#operationId, effect, when);
    return {
      undo: async signal => {
        await this.#undoEffect(effect, signal);
        this.#journal.strikeEffect(effectId);
      },
      keep: () => this.#journal.strikeEffect(effectId),
    };
  }

  /** After it no `failure` effect can be declared any more. */
  markCommitted(): void {
    this.#committed = true;
  }

  /**
   * Tries each effect still in the journal once, newest first. A failing one stays and does not stop those below it.
   * @param newSignal makes a fresh signal for each effect.
   * @param trying is told before each.
   * @returns the failures, newest first; empty when nothing is left.
   */
  async undoAll(newSignal: () => AbortSignal, trying: (effect: Effect) => void): Promise<UndoFailure[]> {
    const failures: UndoFailure[] = [];
    for (const { effectId, effect, when } of this.#journal.effects(this.#operationId)) {
      trying(effect);
      try {
        // What was to be replaced stays when nothing replaces it.
        const due = when !== 'success' || this.#committed;
        if (due) await this.#undoEffect(effect, newSignal());
        this.#journal.strikeEffect(effectId);
        if (due) this.#log.info('effect undone', { effect: effect.type });
      } catch (error) {
        this.#log.warn('effect could not be undone, it stays in the journal', { effect, error });
        failures.push({ what: effect.type, reason: reasonOf(error) });
      }
    }
    return failures;
  }
}
