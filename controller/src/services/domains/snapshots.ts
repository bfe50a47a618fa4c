/** The saved states of a VM: told from the inventory, changed on the node. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { Domain, SavedState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { required, resultOf } from '@virtkeep/shared/operation-result';
import type { Actor } from '../../auth/principal.ts';
import type { Inventory } from '../inventory/inventory.ts';
import { type EndedOperation, entityOf } from '../tasks/ends.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';
import type { TaskState } from '../tasks/tasks.ts';
import type { DomainService } from './domains.ts';

export interface SnapshotRecord {
  id: string;
  verbose_name: string;
  description: string;
  /** The state it was made after; null for a first one. */
  parent: { id: string; verbose_name: string } | null;
  created: string;
  /** The VM's disks come after this one. */
  current: boolean;
  memory: boolean;
  /** The archive whose increment made it; null for one made by hand. */
  backup: string | null;
  /** Targets of the disks it holds. */
  disks: string[];
}

export interface NewSnapshot {
  verbose_name: string;
  memory?: boolean;
  description?: string;
  require_consistency?: boolean;
  allow_network_layers?: boolean;
}

export interface SnapshotServiceDependencies {
  inventory: Inventory;
  nodeTasks: NodeTasks;
  domains: DomainService;
}

export class SnapshotService {
  readonly #inventory: Inventory;
  readonly #nodeTasks: NodeTasks;

  constructor({ inventory, nodeTasks, domains }: SnapshotServiceDependencies) {
    this.#inventory = inventory;
    this.#nodeTasks = nodeTasks;
    nodeTasks.ends.succeeded({
      create_snapshot: ended => this.#created(ended),
      revert_snapshot: ended => domains.changed(ended),
    });
  }

  /** As the node told last, parents before children. @throws domain_not_found. */
  list(domainId: string): SnapshotRecord[] {
    const { domain } = this.#inventory.domain(domainId);
    return domain.savedStates.map(state => snapshotRecord(state, domain));
  }

  /** @throws domain_not_found, snapshot_not_found. */
  get(domainId: string, id: string): SnapshotRecord {
    const { domain } = this.#inventory.domain(domainId);
    return snapshotRecord(stateOf(domain, id), domain);
  }

  /**
   * Makes a state of all disks. Whether the name is free and the VM allows one is the node's decision.
   * @throws domain_not_found, node_unreachable, node_in_service, and what the node answers.
   */
  create(domainId: string, snapshot: NewSnapshot, user: Actor, taskId: string): Promise<TaskState> {
    const { domain, nodeId } = this.#inventory.oneDomain(domainId);
    const request = {
      domainId,
      name: snapshot.verbose_name,
      description: snapshot.description ?? '',
      memory: snapshot.memory ?? false,
      requireConsistency: snapshot.require_consistency ?? false,
      allowNetworkLayers: snapshot.allow_network_layers ?? false,
    };
    return this.#nodeTasks.start({
      taskId,
      name: 'snapshot_create',
      verboseName: `Save the state of ${domain.name} as ${snapshot.verbose_name}`,
      user,
      nodeId,
      entities: [{ id: domainId, class: 'domain' }],
      send: (clients, operationId, signal) =>
        clients.snapshots.create({ operationId, ...request }, { signal }),
    });
  }

  /**
   * Deletes one state. All backups of the VM stop being incremental by it.
   * @param bandwidth most bytes per second that a merge may write; 0: no limit.
   * @throws domain_not_found, snapshot_not_found, node_unreachable, node_in_service, and what the node answers.
   */
  remove(
    domainId: string,
    { id, bandwidth }: { id: string; bandwidth: number },
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    const { domain, nodeId, state } = this.#find(domainId, id);
    const request = { domainId, snapshotId: id, bandwidth: BigInt(bandwidth) };
    return this.#nodeTasks.start({
      taskId,
      name: 'snapshot_remove',
      verboseName: `Delete the state ${state.name} of ${domain.name}`,
      user,
      nodeId,
      entities: [
        { id, class: 'snapshot' },
        { id: domainId, class: 'domain' },
      ],
      send: (clients, operationId, signal) =>
        clients.snapshots.remove({ operationId, ...request }, { signal }),
    });
  }

  /** Brings the VM back to a state; what came after on its disks is lost. @throws as `remove`. */
  revert(domainId: string, id: string, user: Actor, taskId: string): Promise<TaskState> {
    const { domain, nodeId, state } = this.#find(domainId, id);
    return this.#nodeTasks.start({
      taskId,
      name: 'snapshot_revert',
      verboseName: `Revert ${domain.name} to ${state.name}`,
      user,
      nodeId,
      entities: [
        { id: domainId, class: 'domain' },
        { id, class: 'snapshot' },
      ],
      send: (clients, operationId, signal) =>
        clients.snapshots.revert({ operationId, domainId, snapshotId: id }, { signal }),
    });
  }

  /** The state's id is known only now; it is what the task made. */
  async #created(ended: EndedOperation): Promise<SnapshotRecord> {
    const domainId = entityOf(ended.operation, EntityClass.DOMAIN);
    const { id } = required(resultOf(ended.operation, 'createSnapshot').snapshot, 'snapshot');
    await ended.nameEntities([
      { id, class: 'snapshot' },
      { id: domainId, class: 'domain' },
    ]);
    return this.get(domainId, id);
  }

  #find(domainId: string, id: string): { domain: Domain; nodeId: string; state: SavedState } {
    const { domain, nodeId } = this.#inventory.oneDomain(domainId);
    return { domain, nodeId, state: stateOf(domain, id) };
  }
}

function stateOf(domain: Domain, id: string): SavedState {
  const state = domain.savedStates.find(one => one.id === id);
  if (!state) throw new VirtkeepError('snapshot_not_found', { domain: domain.name, id });
  return state;
}

/** Pure. */
export function snapshotRecord(state: SavedState, domain: Domain): SnapshotRecord {
  const parent = domain.savedStates.find(one => one.name === state.parent);
  return {
    id: state.id,
    verbose_name: state.name,
    description: state.description,
    parent: parent ? { id: parent.id, verbose_name: parent.name } : null,
    created: (state.created ?? new Date(0)).toISOString(),
    current: state.current,
    memory: state.memory,
    backup: state.backupId || null,
    disks: state.targets,
  };
}
