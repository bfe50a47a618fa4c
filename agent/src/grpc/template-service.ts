import { VirtkeepError } from '@virtkeep/shared/errors';
import type { TemplateServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { fromLibvirt } from '../libvirt/errors.ts';
import type { OperationRunner } from '../operations/runner.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { relativeOf, thinClonesOf } from '../workflows/family/family.ts';
import { changeTemplateWorkflow } from '../workflows/template/change.ts';
import { cloneWorkflow } from '../workflows/template/clone.ts';
import { requireDescription, requireUuid } from './fields.ts';
import { domainEntities, domainLocks, startOperation } from './start-operation.ts';

/** `TemplateService`; what its methods promise stands in the proto. */
export function templateService(
  runner: OperationRunner,
  dependencies: WorkflowDependencies,
): TemplateServiceImplementation {
  return {
    clone: (request, { signal }) =>
      startOperation(runner, { kind: 'clone_domain', request, signal }, () => {
        const { domainId, newDomainId, poolId, description, thin } = request;
        requireUuid('domain_id', domainId);
        requireUuid('new_domain_id', newDomainId);
        if (poolId !== '') requireUuid('pool_id', poolId);
        requireDescription(description);
        return {
          entities: domainEntities(newDomainId, domainId),
          // several clones of one domain may be made at a time
          locks: [...domainLocks(domainId, WHOLLY, 'shared'), ...domainLocks(newDomainId, WHOLLY)],
          cancellable: true,
          heavy: !thin,
          workflow: cloneWorkflow(dependencies, request),
        };
      }),

    change: (request, { signal }) =>
      startOperation(runner, { kind: 'change_template', request, signal }, async () => {
        requireUuid('domain_id', request.domainId);
        const ids = await familyOf(dependencies, request.domainId);
        return {
          entities: domainEntities(...ids),
          locks: ids.flatMap(id => domainLocks(id, WHOLLY)),
          cancellable: true,
          workflow: changeTemplateWorkflow(dependencies, request, ids),
        };
      }),
  };
}

/** Disks and definition of a domain, and whether it runs. */
const WHOLLY = ['domain', 'power'] as const;

/**
 * The template of a thin clone first, then all its thin clones.
 * @throws VirtkeepError domain_not_found, not_thin_clone, libvirt_failed
 */
async function familyOf({ libvirt }: WorkflowDependencies, domainId: string): Promise<string[]> {
  try {
    const clone = await relativeOf(libvirt(), domainId);
    if (!clone) throw new VirtkeepError('domain_not_found', { id: domainId });
    const { parent } = clone.config.metadata;
    if (!parent) throw new VirtkeepError('not_thin_clone', { domain: clone.config.name });
    const clones = await thinClonesOf(libvirt(), parent.id);
    return [parent.id, ...clones.map(({ config }) => config.uuid)];
  } catch (error) {
    throw fromLibvirt(error, 'change_template');
  }
}
