/** The increment limit of the specification's 2.4: which saved states count, and which go when it is reached; pure. */
import type { Domain, SavedState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { LENT_STATE } from '../disks/attachment-record.ts';
import type { ScheduleDefinition } from './definition.ts';

type Limit = Pick<ScheduleDefinition, 'increment_limit' | 'keep_manual_states'>;

/** Those that people made; the one of lent disks is the service's own, and goes with the last loan. */
export function manualStates({ savedStates }: Pick<Domain, 'savedStates'>): SavedState[] {
  return savedStates.filter(({ backupId, name }) => backupId === '' && name !== LENT_STATE);
}

/**
 * @param restorePoints of the archive that the next increment would extend, or was just extended; 0: there is none
 * @param domain undefined: no node has it
 */
export function isLimitReached(
  limit: Limit,
  restorePoints: number,
  domain: Pick<Domain, 'savedStates'> | undefined,
): boolean {
  if (limit.increment_limit === 0 || restorePoints === 0) return false;
  const manual = limit.keep_manual_states || !domain ? 0 : manualStates(domain).length;
  return restorePoints - 1 + manual >= limit.increment_limit;
}

/** What the limit deletes, the oldest first. */
export function statesToDelete(limit: Limit, domain: Pick<Domain, 'savedStates'>): SavedState[] {
  return domain.savedStates
    .filter(({ backupId, name }) => name !== LENT_STATE && !(limit.keep_manual_states && backupId === ''))
    .sort((a, b) => (a.created?.getTime() ?? 0) - (b.created?.getTime() ?? 0));
}
