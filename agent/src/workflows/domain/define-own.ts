import type { Domain } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { parseDomain } from '../../domain-xml/index.ts';
import { findDomain } from '../../libvirt/domains.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { refuseLeftMemory } from './left-memory.ts';

/**
 * Defines a domain that does not exist, declared before. libvirt would take the definition for a change of one that
 * somebody else has defined under the same id since the operation looked.
 * @param files paths of its disks as the definition names them: what tells it from somebody else's
 * @throws VirtkeepError identity_in_use, file_exists for a saved memory that libvirt would start it from; LibvirtError
 */
export async function defineOwnDomain(
  dependencies: Pick<WorkflowDependencies, 'libvirt' | 'nodeName' | 'saveDirectory'>,
  context: OperationContext,
  { domainId, files }: { domainId: string; files: string[] },
  xml: string,
): Promise<Domain> {
  const libvirt = dependencies.libvirt();
  const other = await findDomain(libvirt, domainId);
  if (other) throw new VirtkeepError('identity_in_use', { domain: other.name, node: dependencies.nodeName });
  await refuseLeftMemory(dependencies, parseDomain(xml, domainId).name);
  context.effects.begin({ type: 'domain', domainId, files }, 'failure');
  return libvirt.defineDomain(xml);
}
