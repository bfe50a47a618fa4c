import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { SnapshotServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import type { OperationRunner } from '../operations/runner.ts';
import {
  asSavedState,
  loadStates,
  type StateFacts,
  savedStateMessage,
  zfsInstants,
} from '../snapshots/index.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { createSnapshotWorkflow } from '../workflows/snapshot/create.ts';
import { removeSnapshotWorkflow } from '../workflows/snapshot/remove.ts';
import { revertSnapshotWorkflow } from '../workflows/snapshot/revert.ts';
import { askDomain, layerLocks } from './ask-domain.ts';
import { requireDescription, requireUuid } from './fields.ts';
import { domainEntities, domainLocks, startOperation } from './start-operation.ts';

/** More would be a mistake of units. */
const MAX_BANDWIDTH = 2n ** 40n;

/** `SnapshotService`; what its methods promise stands in the proto. */
export function snapshotService(
  runner: OperationRunner,
  dependencies: WorkflowDependencies,
): SnapshotServiceImplementation {
  return {
    async list({ domainId }, { signal }) {
      requireUuid('domain_id', domainId);
      const call = 'virDomainSnapshot';
      const states: StateFacts[] = await askDomain(dependencies.libvirt, domainId, call, loadStates);
      const onZfs = await zfsInstants(dependencies.zfs, signal).catch((error: unknown) => {
        dependencies.log.warn('zfs cannot be read', { reason: reasonOf(error) });
        return null;
      });
      const lent = onZfs?.get(domainId);
      if (lent) states.push(asSavedState(lent));
      return { snapshots: states.map(state => savedStateMessage(domainId, state)) };
    },

    create: (request, { signal }) =>
      startOperation(runner, { kind: 'create_snapshot', request, signal }, async () => {
        requireDescription(request.description);
        const workflow = createSnapshotWorkflow(dependencies, request);
        return { ...(await still(request)), workflow };
      }),

    remove: (request, { signal }) =>
      startOperation(runner, { kind: 'remove_snapshot', request, signal }, async () => {
        requireUuid('snapshot_id', request.snapshotId);
        if (request.bandwidth > MAX_BANDWIDTH)
          throw new VirtkeepError('invalid_field', {
            field: 'bandwidth',
            reason: `is more than ${MAX_BANDWIDTH}`,
          });
        const workflow = removeSnapshotWorkflow(dependencies, request);
        return { ...(await merging(request)), workflow };
      }),

    revert: (request, { signal }) =>
      startOperation(runner, { kind: 'revert_snapshot', request, signal }, async () => {
        requireUuid('snapshot_id', request.snapshotId);
        const workflow = revertSnapshotWorkflow(dependencies, request);
        return { ...(await still(request)), workflow };
      }),
  };

  /** A running guest may be shut down meanwhile; one that is off must not start under qemu-img. */
  async function merging({ domainId }: OfDomain) {
    requireUuid('domain_id', domainId);
    const locks = await layerLocks(dependencies.libvirt, domainId);
    return { ...locks, entities: domainEntities(domainId), cancellable: true };
  }

  /** Nobody starts or stops the domain meanwhile. @throws VirtkeepError domain_not_found */
  async function still(request: OfDomain) {
    const { entities, cancellable } = await merging(request);
    return { entities, cancellable, locks: domainLocks(request.domainId, ['domain', 'power']) };
  }
}

interface OfDomain {
  domainId: string;
}
