/** The domain of a saved-state operation: found, free of an earlier backup's leftovers, and looked at. */
import type { Domain } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import {
  type ChainPicture,
  foreignFiles,
  leftoverStates,
  lookAt,
  removeAutomaticState,
  type SavedState,
  savedStateId,
} from '../../snapshots/index.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { refuseWithClones } from '../family/family.ts';

export interface Target {
  domain: Domain;
  picture: ChainPicture;
}

/**
 * @throws VirtkeepError domain_not_found, merge_failed
 */
export async function findTarget(
  dependencies: WorkflowDependencies,
  domainId: string,
  context: OperationContext,
): Promise<Target> {
  await removeLeftoverStates(dependencies, domainId, context);
  const connection = dependencies.libvirt();
  const look = await lookAt(connection, domainId, await foreignFiles(connection, domainId));
  if (!look) throw new VirtkeepError('domain_not_found', { id: domainId });
  return look;
}

/**
 * Whoever holds a VM finds automatic states on it only when the journal that knew them is lost: an operation keeps its
 * lock until its own are removed.
 * @throws VirtkeepError merge_failed
 */
export async function removeLeftoverStates(
  dependencies: WorkflowDependencies,
  domainId: string,
  { signal, log, warn }: OperationContext,
): Promise<void> {
  for (const state of await leftoverStates(dependencies.libvirt(), domainId)) {
    log.warn('an automatic state without an operation is removed', { state: state.name });
    await removeAutomaticState(dependencies, state, { signal, log, warn });
  }
}

/** @throws VirtkeepError template_has_clones */
export async function refuseForClones(
  { libvirt }: WorkflowDependencies,
  { domain: { uuid, name }, picture: { metadata } }: Target,
  action: string,
): Promise<void> {
  await refuseWithClones(libvirt(), { uuid, name, metadata }, action);
}

/** @throws VirtkeepError snapshot_not_found */
export function requireState({ domain, picture }: Target, id: string): SavedState {
  const state = stateById(picture, id);
  if (!state) throw new VirtkeepError('snapshot_not_found', { domain: domain.name, id });
  return state;
}

/** The saved state with the id that we give it (libvirt knows names only). */
export function stateById(picture: ChainPicture, id: string): SavedState | undefined {
  return picture.states.find(state => savedStateId(picture.domainId, state) === id);
}
