/** Restore points of a backup of virtnbdbackup's: which one is meant, and how they are listed. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { BackupState } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { VirtnbdBackup, VirtnbdState } from '../../appliance/index.ts';

/**
 * @param wanted number or name; empty: the newest one
 * @returns undefined: there are no data at all, and none was asked for. @throws VirtkeepError state_not_found
 */
export function stateOf(
  { states }: Pick<VirtnbdBackup, 'states'>,
  wanted: string,
  filename: string,
): VirtnbdState | undefined {
  if (wanted === '') return states.at(-1);
  const found = states.find(({ name }, index) => name === wanted || String(index + 1) === wanted);
  if (!found) throw new VirtkeepError('state_not_found', { file: filename, state: wanted });
  return found;
}

/** Nothing in the files tells whether the guest was quiesced. */
export const listedStates = ({ states }: Pick<VirtnbdBackup, 'states'>): BackupState[] =>
  states.map(({ name, written, lacking }, index) => ({
    number: index + 1,
    name,
    created: written,
    memory: false,
    consistency: 'crash',
    excludedDisks: [...lacking],
  }));
