/** Deletes a saved state and merges what it kept (specification 2.3, 3.2: no backup of before can be extended then). */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { RemoveSnapshotRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { MiB } from '@virtkeep/shared/units';
import { fromDomain } from '../../libvirt/domains.ts';
import {
  lookAt,
  mergeState,
  releaseZfs,
  removalRefusal,
  type ZfsInstant,
  zfsInstants,
} from '../../snapshots/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { requireLasting } from '../domain/domain-kind.ts';
import { refuseLent } from '../domain/refuse-lent.ts';
import { findTarget, refuseForClones, stateById } from '../domain/target.ts';
import { pruneFirmware } from '../firmware/state-firmware.ts';

/** The workflow. Result: `{}`. */
export function removeSnapshotWorkflow(
  dependencies: WorkflowDependencies,
  request: RemoveSnapshotRequest,
): Workflow {
  return context =>
    run(dependencies, request, context).catch(error => {
      context.signal.throwIfAborted();
      throw fromDomain(error, request.domainId, 'remove_snapshot');
    });
}

async function run(
  dependencies: WorkflowDependencies,
  request: RemoveSnapshotRequest,
  context: OperationContext,
): Promise<void> {
  const found = await context.step('check', () => check(dependencies, request, context));
  if (found !== null && typeof found === 'object')
    return context.step('merge', () => removeLent(dependencies, found, context));
  await context.step('merge', () => merge(dependencies, request, found, context));
}

/** The state of disks lent from zfs: nothing is merged. A crash leaves it to the reconciler, since no loan is left. */
async function removeLent(
  { zfs }: WorkflowDependencies,
  { name, instant }: LentFromZfs,
  context: OperationContext,
): Promise<void> {
  await releaseZfs(zfs, name, instant, context);
  context.commit();
}

/** The state of disks lent from zfs, with the name of its domain. */
interface LentFromZfs {
  name: string;
  instant: ZfsInstant;
}

/**
 * @returns the state's name; null when it is deleted already and only its merge is left to be done; the one of lent disks
 *   on zfs, which libvirt does not know
 * @throws VirtkeepError snapshot_not_found, snapshot_in_use, vdisk_attached_elsewhere
 */
async function check(
  dependencies: WorkflowDependencies,
  { domainId, snapshotId }: RemoveSnapshotRequest,
  context: OperationContext,
): Promise<string | null | LentFromZfs> {
  const target = await findTarget(dependencies, domainId, context);
  const { domain, picture } = target;
  const instant = stateById(picture, snapshotId)
    ? undefined
    : (await zfsInstants(dependencies.zfs, context.signal)).get(domainId);
  if (instant?.id === snapshotId) {
    // kept clones have an error of their own, that names the clone
    const loans = picture.metadata.loans?.filter(loan => !loan.cloneKept) ?? [];
    await refuseLent(dependencies.libvirt(), { loans }, domain.name, 'freed of a saved state');
    return { name: domain.name, instant };
  }
  await refuseLent(dependencies.libvirt(), picture.metadata, domain.name, 'freed of a saved state');
  await refuseForClones(dependencies, target, 'freed of a saved state');
  requireLasting({ name: domain.name, ...picture }, 'freed of a saved state');
  const state = stateById(picture, snapshotId);
  if (!state) {
    const { removedStates = [], looseLayers = [] } = picture.metadata;
    if (removedStates.includes(snapshotId) && looseLayers.length > 0) return null;
    throw new VirtkeepError('snapshot_not_found', { domain: domain.name, id: snapshotId });
  }
  const reason = removalRefusal(picture, state);
  if (reason !== null) throw new VirtkeepError('snapshot_in_use', { domain: domain.name, reason });
  return state.name;
}

/**
 * A crash is completed by the next run of the agent. After a cancel or a failure the merge stays where it is, since
 * completing it at once would be what the user did not want, or what has just failed: the next deletion goes on with it.
 */
async function merge(
  dependencies: WorkflowDependencies,
  { domainId, bandwidth }: RemoveSnapshotRequest,
  name: string | null,
  context: OperationContext,
): Promise<void> {
  const { signal, log, warn, progress } = context;
  const goal = { domainId, name, countsAsDeletion: true };
  const handle = context.effects.begin({ type: 'removed_state', ...goal }, 'always');
  const bandwidthMiB = Number(bandwidth) / MiB || dependencies.mergeBandwidthMiB;
  try {
    await mergeState(dependencies, goal, { signal, log, warn, bandwidthMiB, progress });
    await pruneFirmware(dependencies, domainId);
    context.commit();
    // nothing is left: what the disks lie on may go away for good
    handle.keep();
  } catch (error) {
    if (hasKey(signal.reason, 'interrupted')) throw error;
    handle.keep();
    await tellWhatIsLeft(dependencies, domainId, name, context).catch(() => {});
    throw error;
  }
}

/** A cancelled deletion is no state that is still there: from the first merged byte on its content is gone. */
async function tellWhatIsLeft(
  dependencies: WorkflowDependencies,
  domainId: string,
  name: string | null,
  context: OperationContext,
): Promise<void> {
  const { picture } = (await lookAt(dependencies.libvirt(), domainId, new Map())) ?? {};
  const isThere = picture?.states.some(state => state.name === name) ?? true;
  if (isThere || !picture?.metadata.looseLayers?.length) return;
  context.warn(
    'The saved state is deleted already; what it kept is not yet merged. The merge goes on with the next backup of ' +
      'the VM, the next deletion of one of its saved states, or this deletion when it is repeated.',
  );
}
