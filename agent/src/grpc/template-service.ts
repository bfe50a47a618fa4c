import { VirtkeepError } from '@virtkeep/shared/errors';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { TemplateServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { fromLibvirt } from '../libvirt/errors.ts';
import type { OperationRunner } from '../operations/runner.ts';
import type { Lock } from '../workflows/context.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { relativeOf, thinClonesOf } from '../workflows/family/family.ts';
import { changeTemplateWorkflow } from '../workflows/template/change.ts';
import { cloneWorkflow } from '../workflows/template/clone.ts';
import { requireDescription, requireUuid } from './fields.ts';

/** `TemplateService`; what its methods promise stands in the proto. */
export function templateService(
  runner: OperationRunner,
  dependencies: WorkflowDependencies,
): TemplateServiceImplementation {
  return {
    async clone(request) {
      const known = runner.replay(request.operationId, 'clone_domain', request);
      if (known) return known;
      requireUuid('domain_id', request.domainId);
      requireUuid('new_domain_id', request.newDomainId);
      if (request.poolId !== '') requireUuid('pool_id', request.poolId);
      requireDescription(request.description);
      return runner.start({
        id: request.operationId,
        kind: 'clone_domain',
        request,
        entities: [request.newDomainId, request.domainId].map(id => ({
          id,
          entityClass: EntityClass.DOMAIN,
        })),
        // several clones of one domain may be made at a time
        locks: [...wholly(request.domainId, 'shared'), ...wholly(request.newDomainId, 'exclusive')],
        cancellable: true,
        heavy: !request.thin,
        workflow: cloneWorkflow(dependencies, request),
      });
    },

    async change(request) {
      const known = runner.replay(request.operationId, 'change_template', request);
      if (known) return known;
      requireUuid('domain_id', request.domainId);
      const ids = await familyOf(dependencies, request.domainId);
      return runner.start({
        id: request.operationId,
        kind: 'change_template',
        request,
        entities: ids.map(id => ({ id, entityClass: EntityClass.DOMAIN })),
        locks: ids.flatMap(id => wholly(id, 'exclusive')),
        cancellable: true,
        workflow: changeTemplateWorkflow(dependencies, request, ids),
      });
    },
  };
}

/** Disks and definition of a domain, and whether it runs. */
function wholly(id: string, mode: Lock['mode']): Lock[] {
  return [
    { kind: 'domain', id, mode },
    { kind: 'power', id, mode },
  ];
}

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
