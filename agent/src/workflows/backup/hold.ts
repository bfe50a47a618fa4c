/** Which of the states that increments made stay on the VM (specification 3.2). */
import { hasKey, reasonOf } from '@virtkeep/shared/errors';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { isLending, parseDomain } from '../../domain-xml/index.ts';
import type { LeftImage } from '../../images/index.ts';
import { fromDomain } from '../../libvirt/domains.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import {
  foreignFiles,
  loadStates,
  lookAt,
  type MergeRequest,
  mergeState,
  parseIncrementTag,
  presentBranch,
  removalRefusal,
  type SavedState,
} from '../../snapshots/index.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { kindOf } from '../domain/domain-kind.ts';
import { pruneFirmware } from '../firmware/state-firmware.ts';
import { forgetRetired, retiredArchives } from './retired.ts';

const tagOf = ({ description }: Pick<SavedState, 'description'>) => parseIncrementTag(description);

/** Of the states before the current one so many stay when they are not held. */
const KEPT_BEFORE_CURRENT = 2;

/**
 * Names of the states that an archive's increments made and that are to be merged, oldest first: all but the current one
 * and the two latest before it. Those of other archives, and those made by hand, are nobody's business here.
 */
export function statesToMerge(states: readonly SavedState[], backupId: string): string[] {
  return states
    .flatMap(state => {
      const tag = tagOf(state);
      return tag?.backupId === backupId ? [{ name: state.name, number: tag.state }] : [];
    })
    .toSorted((a, b) => a.number - b.number)
    .slice(0, -(KEPT_BEFORE_CURRENT + 1))
    .map(({ name }) => name);
}

/**
 * Names of the states of other archives that can never be extended again, because a state was deleted or reverted to after
 * the newest of theirs, or because they have grown too long, were removed or left for a newer one; oldest first. Nothing needs them any more,
 * and no increment of theirs will ever merge them. Those on branches that the VM left stay: merging one would end the way back there.
 * @param statesDeleted the domain's record of deletions
 * @param retired ids of archives that have grown too long, were removed, or left for a newer one
 */
export function abandonedStates(
  states: readonly SavedState[],
  statesDeleted: Date | undefined,
  backupId: string,
  retired: readonly string[] = [],
): string[] {
  const others = statesOfOthers(states, backupId);
  const extendable = new Set(
    others
      .filter(({ tag }) => !retired.includes(tag.backupId))
      .filter(({ state }) => state.deletedBefore?.getTime() === statesDeleted?.getTime())
      .map(({ tag }) => tag.backupId),
  );
  return others.filter(({ tag }) => !extendable.has(tag.backupId)).map(({ state }) => state.name);
}

function statesOfOthers(states: readonly SavedState[], backupId: string) {
  return presentBranch([...states]).present.flatMap(state => {
    const tag = tagOf(state);
    return tag && tag.backupId !== backupId ? [{ state, tag }] : [];
  });
}

/** What of a request decides which states stay. */
type Holding = Pick<StartBackupRequest, 'domainId' | 'holdStates' | 'removedArchives'>;

/** Whether a backup that leaves a state may have others to merge: held ones stay as long as their archive. */
export const mayMerge = ({ holdStates, removedArchives }: Omit<Holding, 'domainId'>): boolean =>
  !holdStates || removedArchives.length > 0;

/**
 * Merges what is not to stay. It is not counted as a deletion: the last state of each archive keeps its own layer. What a
 * stop of the agent interrupts is completed by its next run; what fails or cannot be merged now is left to the next
 * increment.
 * @throws VirtkeepError snapshot_remove_failed, canceled
 */
export async function mergeOldStates(
  dependencies: WorkflowDependencies,
  context: OperationContext,
  request: Holding,
  backupId: string,
): Promise<void> {
  const libvirt = dependencies.libvirt();
  const { domainId } = request;
  try {
    const names = await namesToMerge(dependencies, request, backupId);
    for (const name of names) {
      const look = await lookAt(libvirt, domainId, await foreignFiles(libvirt, domainId));
      const state = look?.picture.states.find(candidate => candidate.name === name);
      if (!look || !state) continue;
      const refusal = removalRefusal(look.picture, state);
      if (refusal !== null) {
        // the others may go: else a state that somebody made inside of a layer would let the chain grow without end
        context.warn(`The saved state "${name}" stays on the VM for now: ${refusal}.`);
        continue;
      }
      try {
        await merge(dependencies, context, { domainId, name, countsAsDeletion: false });
      } catch (error) {
        if (!hasKey(error, 'pool_no_space')) throw error;
        context.warn(`The saved state "${name}" stays on the VM for now: ${reasonOf(error)}`);
        return;
      }
    }
    await pruneFirmware(dependencies, domainId);
  } catch (error) {
    throw fromLibvirt(error, 'merging saved states');
  }
}

/** @param backupId the archive that was begun or extended */
async function namesToMerge(
  { libvirt, settings }: WorkflowDependencies,
  { domainId, holdStates, removedArchives }: Holding,
  backupId: string,
): Promise<string[]> {
  const domain = libvirt().domain(domainId);
  const states = await loadStates(domain);
  forgetRetired(settings, domainId, new Set(states.flatMap(state => tagOf(state)?.backupId ?? [])));
  const { metadata } = parseDomain(await domain.xml(), domain.name);
  // lent since: what is lent stays as it is, and the next increment merges
  if (isLending(metadata)) return [];
  if (holdStates)
    return statesOfOthers(states, backupId)
      .filter(({ tag }) => removedArchives.includes(tag.backupId))
      .map(({ state }) => state.name);
  const retired = [...retiredArchives(settings, domainId), ...removedArchives];
  const abandoned = abandonedStates(states, metadata.statesDeleted, backupId, retired);
  return [...statesToMerge(states, backupId), ...abandoned];
}

async function merge(
  dependencies: WorkflowDependencies,
  { effects, signal, log, warn, progress }: OperationContext,
  goal: MergeRequest & { name: string },
): Promise<void> {
  const handle = effects.begin({ type: 'removed_state', ...goal }, 'always');
  const bandwidthMiB = dependencies.mergeBandwidthMiB;
  try {
    const options = { signal, log, warn, bandwidthMiB, progress, settle: telling(warn) };
    await mergeState(dependencies, goal, options);
    handle.keep();
  } catch (error) {
    if (!signal.aborted) handle.keep();
    throw error;
  }
}

/** A backup waits for no node that is not heard: layers that stay are in nobody's way, and the next one asks again. */
const telling = (warn: (text: string) => void) => (left: readonly LeftImage[]) => {
  for (const { text } of left) warn(text);
};

/** Completes merges that were interrupted, so that no block job and no half-merged layer is in a backup's way. */
export async function completeMerges(
  dependencies: WorkflowDependencies,
  context: OperationContext,
  domainId: string,
): Promise<void> {
  const { signal, log, warn } = context;
  const domain = dependencies.libvirt().domain(domainId);
  try {
    const { metadata } = parseDomain(await domain.xml(), domainId);
    if (!metadata.looseLayers?.length) return;
    // it goes on with its layers as they are: whatever needs them merged refuses it
    if ((await kindOf(domain)).memorySaved) return;
  } catch (error) {
    throw fromDomain(error, domainId, 'virDomainGetXMLDesc');
  }
  const bandwidthMiB = dependencies.mergeBandwidthMiB;
  const goal = { domainId, name: null, countsAsDeletion: false };
  await mergeState(dependencies, goal, { signal, log, warn, bandwidthMiB, settle: telling(warn) });
}
