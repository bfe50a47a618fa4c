/**
 * A VM that another node knows, too: a migration left its definition behind, or it was copied. The running one is the VM; to
 * start, back up or remove the other would destroy its disks, or save what is not its content.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Answer } from '../other-nodes.ts';
import type { WorkflowDependencies } from './dependencies.ts';

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

/** @throws VirtkeepError domain_elsewhere, domain_runs_twice, domain_on_several_nodes */
export async function refuseStaleCopy(
  { otherNodes, nodeName }: Pick<WorkflowDependencies, 'otherNodes' | 'nodeName'>,
  own: OwnCopy,
  signal: AbortSignal,
): Promise<void> {
  const [answer] = await otherNodes.whoUses([{ kind: 'domain', id: own.id }], signal);
  const refusal = copyRefusal(own, nodeName, answer);
  if (refusal) throw refusal;
}
