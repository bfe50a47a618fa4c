/**
 * In which order the effects of one operation are undone, and which wait while another could not be undone.
 *
 * This table is the one place that says so. A recipe may declare its effects in any order: what an effect stands on is known by
 * its type, so that nothing is taken away under an undo that still needs it.
 */
import type { Effect, UndoWhen } from '../workflows/effect.ts';

type EffectType = Effect['type'];

interface UndoRule {
  /**
   * Types that must be undone before: what they did, or their undo itself, still needs what this one takes away. Holds also
   * against the order of declaration.
   */
  after: readonly EffectType[];
  /**
   * What happens to those declared before while this one cannot be undone. `waits`: they stay, since this one may stand on
   * them. `goes_on`: they are undone all the same, but for those that name this type in `after`.
   */
  older: 'waits' | 'goes_on';
  /**
   * What those have in common that stand on one another, for types of which some do: one waits while a later one of the same stack is
   * not undone. Unlike all else here this does not bind the recipe itself, which knows when one no longer stands on the other: when its
   * data were merged into that.
   */
  stackOf?: (effect: Effect) => string | undefined;
  /** A guest stands still until it is undone: it comes first and waits for nothing. */
  urgent?: true;
}

/** What only removes or puts back files leaves the rest alone; what changes a domain holds up all that was done before it. */
const RULES: Record<EffectType, UndoRule> = {
  // the agent of a suspended guest does not answer
  frozen_guest: { after: ['paused_guest'], older: 'goes_on', urgent: true },
  paused_guest: { after: [], older: 'goes_on', urgent: true },
  automatic_state: { after: [], older: 'waits' },
  // with the last loan goes the state that its owner was frozen in
  loan: { after: ['automatic_state'], older: 'waits' },
  attached_disk: { after: [], older: 'waits' },
  removed_state: { after: [], older: 'waits' },
  revert: { after: [], older: 'waits' },
  // the domain goes back to them
  unused_layers: { after: ['revert'], older: 'goes_on' },
  appended_archive: { after: [], older: 'goes_on' },
  archive: { after: [], older: 'goes_on' },
  // by the reservation it is known whose the published file is
  reserved_name: { after: ['archive'], older: 'goes_on' },
  replaced_archive: { after: [], older: 'goes_on' },
  trimmed_archive: { after: [], older: 'goes_on' },
  file: {
    // disks of a domain that is still defined, copies that a revert is undone with, an archive's old end
    after: ['domain', 'attached_disk', 'revert', 'appended_archive'],
    older: 'goes_on',
    // a base that is to be removed under a layer is left for good: the layers of one disk, wherever each lies
    stackOf: effect => (effect.type === 'file' ? effect.stack : undefined),
  },
  directory: { after: ['file', 'domain', 'automatic_state', 'changed_disks'], older: 'goes_on' },
  domain: { after: [], older: 'waits' },
  // a failed restore has nothing to pull when its domain is gone
  instant_pull: { after: ['domain'], older: 'waits' },
  archive_access: { after: ['domain', 'instant_pull'], older: 'goes_on' },
  changed_disks: { after: [], older: 'waits' },
  template_change: { after: [], older: 'waits' },
  renamed_domain: { after: [], older: 'waits' },
  guest_packages: { after: [], older: 'goes_on' },
  guest_name: { after: [], older: 'goes_on' },
  guest_change: { after: [], older: 'goes_on' },
  orphaned_files: { after: [], older: 'goes_on' },
  // it is told of what has become
  backup_hook: {
    after: [
      ...(['frozen_guest', 'paused_guest', 'automatic_state', 'removed_state', 'appended_archive'] as const),
      ...(['archive', 'reserved_name', 'replaced_archive', 'file'] as const),
    ],
    older: 'goes_on',
  },
};

/** An effect that is still in the journal. */
export interface PendingEffect {
  effectId: number;
  effect: Effect;
  when: UndoWhen;
}

/** The order in which they are to be tried: guests first, then the newest first, but for what the table says. */
export function undoOrder<T extends PendingEffect>(pending: readonly T[]): T[] {
  const left = pending.toSorted((a, b) => urgency(b.effect) - urgency(a.effect) || b.effectId - a.effectId);
  const order: T[] = [];
  while (left.length > 0) {
    const next = left.findIndex(({ effect }) => !left.some(other => mustPrecede(other.effect, effect)));
    order.push(...left.splice(next, 1));
  }
  return order;
}

const urgency = ({ type }: Effect): number => (RULES[type].urgent ? 1 : 0);

const mustPrecede = (first: Effect, second: Effect): boolean => RULES[second.type].after.includes(first.type);

/**
 * Whether an effect waits for one that comes before it in the order and is not undone: for whatever still needs it (`isNeededBy`),
 * and, the one rule more, for what may stand on it in one stack.
 */
export function waitsFor(pending: PendingEffect, earlier: PendingEffect): boolean {
  return isNeededBy(pending, earlier) || mayStandOn(earlier.effect, pending.effect);
}

function mayStandOn(upper: Effect, lower: Effect): boolean {
  const stack = RULES[lower.type].stackOf?.(lower);
  return stack !== undefined && upper.type === lower.type && RULES[upper.type].stackOf?.(upper) === stack;
}

/**
 * Whether a recipe may not undo an effect before one that comes before it in the order. That is all of `waitsFor` but for stacks: a
 * recipe that has merged a layer into the one below removes it whatever came later.
 */
export function isNeededBy({ effect }: PendingEffect, earlier: PendingEffect): boolean {
  if (RULES[effect.type].urgent) return false;
  return RULES[earlier.effect.type].older === 'waits' || mustPrecede(earlier.effect, effect);
}
