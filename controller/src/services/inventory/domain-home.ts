/**
 * Which of the nodes that report one VM has it. A migration may leave its definition behind, and a definition may be copied:
 * the running one is the VM. Pure.
 */
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';

/** Why nothing may be done with a VM: it runs nowhere and nobody knows where it did last, or it runs several times. */
export interface Conflict {
  kind: 'unclear' | 'twice';
  nodeIds: string[];
}

export interface DomainHome {
  nodeId: string;
  /** Where it was last seen to run; null: never. */
  ranOn: string | null;
  conflict: Conflict | null;
}

/**
 * While a VM moves, it is suspended on one of the two nodes: then it is the running one.
 * @param reports by node, at least one; unspecified: the node is away
 * @param before undefined: it was not known
 */
export function domainHome(
  reports: ReadonlyMap<string, PowerState>,
  before: Pick<DomainHome, 'nodeId' | 'ranOn'> | undefined,
): DomainHome {
  const on = (...states: PowerState[]) =>
    [...reports].flatMap(([id, state]) => (states.includes(state) ? [id] : []));
  const running = on(PowerState.RUNNING);
  const active = running.length > 0 ? running : on(PowerState.SUSPENDED);
  const keep = (ids: readonly string[]) => (before && ids.includes(before.nodeId) ? before.nodeId : ids[0]!);
  if (active.length > 0) {
    const nodeId = keep(active);
    const conflict: Conflict | null = active.length > 1 ? { kind: 'twice', nodeIds: active } : null;
    return { nodeId, ranOn: nodeId, conflict };
  }
  const ranOn = before?.ranOn ?? null;
  const all = [...reports.keys()];
  if (all.length === 1) return { nodeId: all[0]!, ranOn, conflict: null };
  if (ranOn !== null && reports.has(ranOn)) return { nodeId: ranOn, ranOn, conflict: null };
  return { nodeId: keep(all), ranOn, conflict: { kind: 'unclear', nodeIds: all } };
}
