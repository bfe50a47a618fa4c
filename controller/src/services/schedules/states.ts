/** The increment limit of the specification's 2.4: what counts, and which saved states go when it is reached; pure. */
import type { Domain, SavedState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { FileRow } from '../../store/schema.ts';
import { detailsOf } from '../backup-files/record.ts';
import { LENT_STATE } from '../disks/attachment-record.ts';
import type { ScheduleDefinition } from './definition.ts';

type Limit = Pick<ScheduleDefinition, 'increment_limit' | 'keep_manual_states'>;

/** Those that people made; the one of lent disks is the service's own, and goes with the last loan. */
export function manualStates({ savedStates }: Pick<Domain, 'savedStates'>): SavedState[] {
  return savedStates.filter(({ backupId, name }) => backupId === '' && name !== LENT_STATE);
}

/** How often an archive was extended, also where old restore points were taken out of it: they leave their numbers, which begin with 1. */
const incrementsOf = (file: FileRow): number => (detailsOf(file).states.at(-1)?.number ?? 1) - 1;

/** @param file the archive that the next increment would extend, or that was just extended; undefined: there is none */
export function isLimitReached({ increment_limit }: Limit, file: FileRow | undefined): boolean {
  return increment_limit > 0 && file !== undefined && incrementsOf(file) >= increment_limit;
}

/** What the limit deletes, the oldest first. */
export function statesToDelete(limit: Limit, domain: Pick<Domain, 'savedStates'>): SavedState[] {
  return domain.savedStates
    .filter(({ backupId, name }) => name !== LENT_STATE && !(limit.keep_manual_states && backupId === ''))
    .sort((a, b) => (a.created?.getTime() ?? 0) - (b.created?.getTime() ?? 0));
}
