import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import type { Effect, EffectHandle, Effects, UndoEffect, UndoWhen } from '../workflows/effect.ts';
import type { EffectRecord, Journal } from './journal.ts';
import { isNeededBy, undoOrder, waitsFor } from './undo-order.ts';

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
  readonly #warn: (text: string) => void;
  /** What is left of effects, also where the journal had no room for it. */
  readonly #amended = new Map<number, Effect>();
  #committed = false;

  constructor(
    journal: Journal,
    operationId: string,
    undoEffect: UndoEffect,
    { log, warn = () => {} }: { log: Logger; warn?: (text: string) => void },
  ) {
    this.#journal = journal;
    this.#operationId = operationId;
    this.#undoEffect = undoEffect;
    this.#log = log;
    this.#warn = warn;
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
        this.#refuseEarly(effectId);
        await this.#undo({ effectId, effect }, signal);
      },
      keep: () => this.#journal.strikeEffect(effectId),
    };
  }

  /** After it no `failure` effect can be declared any more. */
  markCommitted(): void {
    this.#committed = true;
  }

  /**
   * Tries each effect still in the journal once, in the order of `undoOrder`. One that fails stays, and so do those that
   * wait for it: the next pass goes on there.
   * @param signalOf makes the signal for an effect.
   * @param trying is told before each.
   * @returns the failures, in the order of their tries; empty when nothing is left.
   */
  async undoAll(
    signalOf: (effect: Effect) => AbortSignal,
    trying: (effect: Effect) => void,
  ): Promise<UndoFailure[]> {
    const stuck: EffectRecord[] = [];
    const { due, failures } = this.#dueEffects();
    for (const record of undoOrder(due)) {
      const { effect } = record;
      const reason = stuck.find(earlier => waitsFor(record, earlier));
      if (reason) {
        this.#log.info('effect waits for another', { effect: effect.type, for: reason.effect.type });
        stuck.push(record);
        continue;
      }
      trying(effect);
      try {
        await this.#undo(record, signalOf(effect));
        this.#log.info('effect undone', { effect: effect.type });
      } catch (error) {
        // not the whole of it: a definition in it may hold passwords
        this.#log.warn('effect could not be undone, it stays in the journal', { effect: effect.type, error });
        failures.push({ what: effect.type, reason: reasonOf(error) });
        stuck.push(record);
      }
    }
    return failures;
  }

  async #undo(
    { effectId, effect }: Pick<EffectRecord, 'effectId' | 'effect'>,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#undoEffect(this.#amended.get(effectId) ?? effect, signal, this.#warn, left => {
      this.#amended.set(effectId, left);
      try {
        this.#journal.amendEffect(effectId, left);
      } catch (error) {
        this.#log.warn('what is left of an effect could not be noted', { effect: left.type, error });
      }
    });
    this.#journal.strikeEffect(effectId);
    this.#amended.delete(effectId);
  }

  /**
   * Those to be undone now. What a result was to replace stays when there is none, and is struck. Where the journal has no room for
   * that, guests are thawed all the same.
   */
  #dueEffects(): { due: EffectRecord[]; failures: UndoFailure[] } {
    const all = this.#journal.effects(this.#operationId);
    if (this.#committed) return { due: all, failures: [] };
    const failures: UndoFailure[] = [];
    try {
      for (const { effectId, when } of all) if (when === 'success') this.#journal.strikeEffect(effectId);
    } catch (error) {
      failures.push({ what: 'journal', reason: reasonOf(error) });
    }
    return { due: all.filter(({ when }) => when !== 'success'), failures };
  }

  /** A recipe that undoes one effect before its end must not take it away from others. */
  #refuseEarly(effectId: number): void {
    const order = undoOrder(this.#journal.effects(this.#operationId));
    const at = order.findIndex(record => record.effectId === effectId);
    if (at < 0) return;
    const holder = order
      .slice(0, at)
      .find(earlier => (this.#committed || earlier.when !== 'success') && isNeededBy(order[at]!, earlier));
    if (!holder) return;
    const cause = new Error(`${order[at]!.effect.type} was to be undone before ${holder.effect.type}`);
    throw new VirtkeepError('internal', { request_id: this.#operationId }, { cause });
  }
}
