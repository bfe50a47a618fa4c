/**
 * A VM that another node knows, too: a migration left its definition behind, or it was copied. The running one is the VM; to
 * start, change, back up or remove the other would destroy its disks, or save what is not its content. About every domain that an
 * operation holds it is asked before the work begins, unless that says that the domain may be a copy: those that switch off, remove a
 * definition without its disks, end loans, restore (which asks for itself), and attach or lend a disk of a template, which never
 * changes wherever it is defined. What an undo would start again it asks about as well: its operation may have begun long ago, in an
 * earlier run of the agent. A change of description or template mark is no operation and is not asked about: it touches no
 * disk. That a template has thin clones on other nodes is asked by what they forbid (`workflows/family/clones-elsewhere.ts`).
 */

import type { Libvirt } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { fromDomain } from '../../libvirt/domains.ts';
import { isNoDomain } from '../../libvirt/errors.ts';
import type { Answer } from '../../other-nodes.ts';
import type { WorkflowDependencies } from '../dependencies.ts';

export interface OwnCopy {
  id: string;
  name: string;
  /** It runs or is suspended. */
  active: boolean;
}

/**
 * Only what is proven refuses: a node that was not heard must not keep the VMs of the others from being started. Pure.
 * @param node the name of this node
 */
export function copyRefusal(
  own: OwnCopy,
  node: string,
  answer: Answer | undefined,
): VirtkeepError | undefined {
  // a thin clone elsewhere is no copy
  if (answer?.kind !== 'used' || answer.by.domainId !== own.id) return undefined;
  const { nodeName: other, active = false, lastRanHere = false } = answer.by;
  const nodes = [node, other].sort().join(', ');
  if (own.active)
    return active ? new VirtkeepError('domain_runs_twice', { domain: own.name, nodes }) : undefined;
  if (active) return new VirtkeepError('domain_elsewhere', { domain: own.name, node, other });
  return lastRanHere ? undefined : new VirtkeepError('domain_on_several_nodes', { domain: own.name, nodes });
}

/**
 * Refuses when one of these domains is a stale copy. One that this node has not is no copy: it is being made, or was removed.
 * @throws VirtkeepError domain_elsewhere, domain_runs_twice, domain_on_several_nodes, libvirt_unreachable, libvirt_failed
 */
export async function refuseStaleCopies(
  { libvirt, otherNodes, nodeName }: Pick<WorkflowDependencies, 'libvirt' | 'otherNodes' | 'nodeName'>,
  ids: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const read = await Promise.all(ids.map(id => ownCopy(libvirt(), id)));
  const copies = read.filter(copy => copy !== undefined);
  if (copies.length === 0) return;
  const things = copies.map(({ id }) => ({ kind: 'domain' as const, id }));
  const answers = await otherNodes.whoUses(things, signal);
  for (const [index, copy] of copies.entries()) {
    const refusal = copyRefusal(copy, nodeName, answers[index]);
    if (refusal) throw refusal;
  }
}

/**
 * The refusal to start a domain that is off on this node; undefined when it may be, as far as is known. It asks nothing of libvirt, and
 * rejects only when the signal fires.
 */
export async function startRefusal(
  { otherNodes, nodeName }: Pick<WorkflowDependencies, 'otherNodes' | 'nodeName'>,
  { id, name }: Pick<OwnCopy, 'id' | 'name'>,
  signal: AbortSignal,
): Promise<VirtkeepError | undefined> {
  const [answer] = await otherNodes.whoUses([{ kind: 'domain', id }], signal);
  return copyRefusal({ id, name, active: false }, nodeName, answer);
}

async function ownCopy(libvirt: Libvirt, id: string): Promise<OwnCopy | undefined> {
  try {
    const domain = await libvirt.domainByUuid(id);
    return { id, name: domain.name, active: await domain.isActive() };
  } catch (error) {
    if (isNoDomain(error)) return undefined;
    throw fromDomain(error, id, 'virDomainIsActive');
  }
}
