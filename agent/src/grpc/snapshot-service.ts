import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { SnapshotServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import type { OperationRunner, StartOptions } from '../operations/runner.ts';
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
import { ZfsDriver } from '../zfs/index.ts';
import { askDomain, domainLocks, layerLocks } from './ask-domain.ts';
import { requireDescription, requireUuid } from './fields.ts';

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
      const onZfs = await zfsInstants(new ZfsDriver(), signal).catch((error: unknown) => {
        dependencies.log.warn('zfs cannot be read', { reason: reasonOf(error) });
        return null;
      });
      const lent = onZfs?.get(domainId);
      if (lent) states.push(asSavedState(lent));
      return { snapshots: states.map(state => savedStateMessage(domainId, state)) };
    },

    async create(request) {
      const known = runner.replay(request.operationId, 'create_snapshot', request);
      if (known) return known;
      requireDescription(request.description);
      const workflow = createSnapshotWorkflow(dependencies, request);
      const held = await locksOf(dependencies, request.domainId, 'always');
      return start(runner, 'create_snapshot', request, { ...held, workflow });
    },

    async remove(request) {
      const known = runner.replay(request.operationId, 'remove_snapshot', request);
      if (known) return known;
      requireUuid('snapshot_id', request.snapshotId);
      if (request.bandwidth > MAX_BANDWIDTH)
        throw new VirtkeepError('invalid_field', {
          field: 'bandwidth',
          reason: `is more than ${MAX_BANDWIDTH}`,
        });
      const workflow = removeSnapshotWorkflow(dependencies, request);
      // a running guest may be shut down while its layers are merged; one that is off must not start under qemu-img
      const held = await locksOf(dependencies, request.domainId, 'when_off');
      return start(runner, 'remove_snapshot', request, { ...held, workflow });
    },

    async revert(request) {
      const known = runner.replay(request.operationId, 'revert_snapshot', request);
      if (known) return known;
      requireUuid('snapshot_id', request.snapshotId);
      const workflow = revertSnapshotWorkflow(dependencies, request);
      const held = await locksOf(dependencies, request.domainId, 'always');
      return start(runner, 'revert_snapshot', request, { ...held, workflow });
    },
  };
}

type Held = Pick<StartOptions, 'locks' | 'further'>;

/** @param power whether nobody may start or stop the domain meanwhile */
async function locksOf(
  { libvirt }: WorkflowDependencies,
  domainId: string,
  power: 'always' | 'when_off',
): Promise<Held> {
  requireUuid('domain_id', domainId);
  const layers = await layerLocks(libvirt, domainId);
  return power === 'always' ? { locks: domainLocks(domainId, true) } : layers;
}

function start(
  runner: OperationRunner,
  kind: string,
  request: { operationId: string; domainId: string },
  what: Held & Pick<StartOptions, 'workflow'>,
): Operation {
  const { domainId } = request;
  return runner.start({
    id: request.operationId,
    kind,
    request,
    entities: [{ id: domainId, entityClass: EntityClass.DOMAIN }],
    ...what,
    cancellable: true,
  });
}
