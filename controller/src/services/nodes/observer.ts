/**
 * What the controller makes of a node's streams: its inventory, the progress and results of its operations, its coming
 * and going. The results of operations take effect whoever started them: another service's backup is in the catalogue
 * as well.
 */

import { hasKey } from '@virtkeep/shared/errors';
import { ArchiveSignature } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import { SavedState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { InventoryEvent, Question, UseAnswer } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import {
  type Operation,
  type OperationEvent,
  OperationState,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import type { AgentClients } from '../../agents/clients.ts';
import type { LinkObserver } from '../../agents/link.ts';
import type { LibraryService } from '../backups/library.ts';
import { shownSignature } from '../backups/show-record.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import { workOf } from '../catalogue/file-work.ts';
import type { RemovedArchives } from '../catalogue/removed-archives.ts';
import type { LendingService } from '../disks/attachments.ts';
import type { DomainService } from '../domains/domains.ts';
import type { SnapshotService } from '../domains/snapshots.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { EventService } from '../journal/events.ts';
import type { PoolService } from '../pools/pools.ts';
import { isUsable } from '../pools/record.ts';
import type { NodeTasks, OperationListener } from '../tasks/node-tasks.ts';
import { isFinal } from '../tasks/record.ts';
import type { TaskOutcome, TaskService, TaskState } from '../tasks/tasks.ts';
import type { CertificateRegister } from './certificate-register.ts';
import type { OtherNodes } from './other-nodes.ts';
import type { RevocationService } from './revocations.ts';

export interface ObserverDeps {
  inventory: Inventory;
  register: CertificateRegister;
  revocations: RevocationService;
  catalogue: Catalogue;
  removedArchives: RemovedArchives;
  tasks: TaskService;
  nodeTasks: NodeTasks;
  domains: DomainService;
  pools: PoolService;
  library: LibraryService;
  snapshots: SnapshotService;
  lending: LendingService;
  otherNodes: OtherNodes;
  events: EventService;
  log: Logger;
  /** How long a node may be away before its tasks count as lost. */
  graceMs: number;
}

const CALL_TIMEOUT_MS = 10_000;
/** The position in the stream is written with every outcome, and at least this often. */
const SEQUENCE_INTERVAL_MS = 5000;

export class NodeObserver implements LinkObserver, OperationListener {
  #deps: ObserverDeps | undefined;
  readonly #lossTimers = new Map<string, NodeJS.Timeout>();
  readonly #sequences = new Map<string, { value: bigint; writtenAt: number }>();
  readonly #clients = new Map<string, AgentClients>();

  /** Called once, before any link is started; the links themselves need the observer to be made. */
  attach(deps: ObserverDeps): void {
    this.#deps = deps;
    deps.nodeTasks.setListener(this);
  }

  get #d(): ObserverDeps {
    if (!this.#deps) throw new Error('the observer is not attached');
    return this.#deps;
  }

  /**
   * A journal that begins again (the node's state was lost) has smaller sequences than the one we followed: then we
   * follow from its present end, and the tasks that it does not know have failed already.
   */
  async reattach(
    nodeId: string,
    clients: AgentClients,
    signal: AbortSignal,
  ): Promise<{ afterSequence: bigint }> {
    const { nodeTasks, inventory } = this.#d;
    this.#clients.set(nodeId, clients);
    const { sequence } = await clients.operations.list({ running: true }, { signal });
    await nodeTasks.reattach(nodeId, clients);
    await this.#settleFiles(nodeId, clients, signal);
    const stored = BigInt(inventory.node(nodeId).row.operation_sequence);
    const afterSequence = stored === 0n || stored > sequence ? sequence : stored;
    this.#sequences.set(nodeId, { value: afterSequence, writtenAt: 0 });
    await this.#writeSequence(nodeId);
    return { afterSequence };
  }

  /**
   * Files in work whose task has ended already: it was given up while the node was away, or the controller stopped
   * between the two. The node says what became of the operation; where it does not know, nothing did.
   */
  async #settleFiles(nodeId: string, clients: AgentClients, ended: AbortSignal): Promise<void> {
    const { catalogue, tasks, nodeTasks } = this.#d;
    for (const file of await catalogue.inWork()) {
      const task = await workOf(file, tasks);
      if (task?.row.node_id !== nodeId || !isFinal(task.row.status)) continue;
      const signal = AbortSignal.any([ended, AbortSignal.timeout(CALL_TIMEOUT_MS)]);
      const operation = await clients.operations
        .get({ id: task.row.id }, { signal })
        .catch((error: unknown) => {
          if (hasKey(error, 'operation_not_found')) return undefined;
          throw error;
        });
      if (operation?.state === OperationState.SUCCEEDED) await nodeTasks.apply(nodeId, operation);
      else if (operation?.state !== OperationState.RUNNING)
        await catalogue.operationFailed(file.id, task.row.id);
    }
  }

  inventory(nodeId: string, event: InventoryEvent): Promise<void> {
    return this.#d.inventory.apply(nodeId, event);
  }

  async operation(nodeId: string, event: OperationEvent): Promise<void> {
    if (event.operation) await this.#d.nodeTasks.apply(nodeId, event.operation);
    const place = this.#sequences.get(nodeId);
    if (!place) return;
    place.value = event.sequence;
    const ended = event.operation?.state !== OperationState.RUNNING;
    if (ended || Date.now() - place.writtenAt > SEQUENCE_INTERVAL_MS) await this.#writeSequence(nodeId);
  }

  async #writeSequence(nodeId: string): Promise<void> {
    const place = this.#sequences.get(nodeId);
    if (!place || !this.#d.inventory.nodes.has(nodeId)) return;
    place.writtenAt = Date.now();
    await this.#d.inventory.updateNode(nodeId, { operation_sequence: Number(place.value) }, false);
  }

  connected(nodeId: string, clients: AgentClients): void {
    this.#stopLossTimer(nodeId);
    const { log, nodeTasks } = this.#d;
    for (const work of [
      this.#d.revocations.tell(nodeId, clients),
      nodeTasks.connected(nodeId),
      this.#afterConnect(nodeId),
    ])
      work.catch((error: unknown) =>
        log.warn('not everything was done after the node returned', { node: nodeId, error }),
      );
  }

  async #afterConnect(nodeId: string): Promise<void> {
    const { inventory, register, pools, events } = this.#d;
    await register.connected(nodeId);
    const name = inventory.node(nodeId).row.verbose_name;
    await inventory.updateNode(nodeId, { last_seen: new Date().toISOString() });
    const entities = [{ id: nodeId, class: 'node' }];
    await events.record({ type: 'info', message: `Node ${name} is connected`, entities });
    await pools.pushMarks(nodeId);
    const scannable = [...inventory.pools].filter(([, entry]) => {
      const view = entry.views.get(nodeId);
      return view !== undefined && isUsable(view) && view.path !== '';
    });
    const poolIds = scannable.map(([id]) => id);
    await pools.scanQuietly(nodeId, poolIds, newId);
  }

  question(nodeId: string, question: Question): Promise<UseAnswer[]> {
    return this.#d.otherNodes.answer(nodeId, question);
  }

  async lost(nodeId: string, reason: string): Promise<void> {
    this.#clients.delete(nodeId);
    const { inventory, events } = this.#d;
    await this.#writeSequence(nodeId);
    this.startLossTimer(nodeId);
    if (!inventory.nodes.has(nodeId)) return;
    await inventory.nodeAway(nodeId);
    await inventory.updateNode(nodeId, { last_seen: new Date().toISOString() });
    const message = `Node ${inventory.node(nodeId).row.verbose_name} is not reachable`;
    await events.record({
      type: 'warning',
      message,
      detailMessage: reason,
      entities: [{ id: nodeId, class: 'node' }],
    });
  }

  /** Unless the node comes back in time, its tasks are LOST. Also for every node at start, which is not there yet. */
  startLossTimer(nodeId: string): void {
    this.#stopLossTimer(nodeId);
    const { tasks, log, graceMs } = this.#d;
    const timer = setTimeout(() => {
      tasks.markLost(nodeId).catch((error: unknown) => log.error('could not mark tasks lost', { error }));
    }, graceMs);
    this.#lossTimers.set(nodeId, timer);
  }

  #stopLossTimer(nodeId: string): void {
    clearTimeout(this.#lossTimers.get(nodeId));
    this.#lossTimers.delete(nodeId);
  }

  stop(): void {
    for (const nodeId of [...this.#lossTimers.keys()]) this.#stopLossTimer(nodeId);
  }

  async succeeded(nodeId: string, operation: Operation, result: unknown): Promise<unknown> {
    const { catalogue, library, domains } = this.#d;
    switch (operation.kind) {
      case 'backup':
        return this.#backedUp(nodeId, operation, result);
      case 'recompress': {
        const file = BackupFile.fromJSON((result as { file: unknown }).file);
        const from = await this.#fileOf(nodeId, operation);
        return library.get(await catalogue.made(file, operation.id, { from }));
      }
      case 'recompress_copy':
        return this.#copied(nodeId, operation, result);
      case 'verify': {
        const id = await this.#fileOf(nodeId, operation);
        const { verified_at, restorable_states = null, signature, ...found } = result as VerifyResult;
        await catalogue.verified(id, {
          ...found,
          verifiedAt: verified_at,
          restorableStates: restorable_states,
        });
        return {
          ...(await library.get(id)),
          ...found,
          verified_at,
          restorable_states,
          signature: shownSignature(signature && ArchiveSignature.fromJSON(signature)),
        };
      }
      case 'delete_backup': {
        const id = await this.#fileOf(nodeId, operation);
        const row = await catalogue.find(id);
        if (row) await this.#d.removedArchives.removed(row);
        await catalogue.remove(id);
        return {};
      }
      case 'scan_pool': {
        const id = entityOf(operation, EntityClass.DATA_POOL);
        const { files } = result as { files: unknown[] };
        const sees = (poolId: string) => this.#sees(nodeId, poolId);
        await catalogue.scanned(id, files.map(BackupFile.fromJSON), operation.id, sees);
        return this.#d.pools.get(id);
      }
      case 'create_snapshot':
        return this.#snapshotMade(nodeId, operation, result);
      case 'remove_snapshot':
        await this.#refreshDomain(nodeId, entityOf(operation, EntityClass.DOMAIN));
        return result;
      case 'revert_snapshot':
      case 'restore':
      case 'rename_domain':
      case 'power': {
        const id = entityOf(operation, EntityClass.DOMAIN);
        await this.#refreshDomain(nodeId, id);
        return domains.get(id, null);
      }
      case 'clone_domain': {
        const { domain_id: id } = result as { domain_id: string };
        await this.#refreshDomain(nodeId, id);
        return domains.get(id, null);
      }
      case 'change_template': {
        const { template_id: id, clones = [] } = result as { template_id: string; clones?: string[] };
        for (const changed of [id, ...clones]) await this.#refreshDomain(nodeId, changed);
        return result;
      }
      case 'attach_disk':
        return this.#d.lending.attached(operation, result);
      case 'detach_disk':
        return this.#d.lending.detached(result);
      case 'return_disk':
        return this.#d.lending.returned(operation);
      case 'remove_domain':
        await this.#d.inventory.domainGoes(nodeId, entityOf(operation, EntityClass.DOMAIN));
        return result;
      default:
        return undefined;
    }
  }

  followUp(task: TaskState, outcome: TaskOutcome): Promise<TaskOutcome> | undefined {
    return this.#d.lending.followUp(task, outcome);
  }

  /** Sets the file right that the task was making or changing: its first entity. */
  async failed(_nodeId: string, task: TaskState): Promise<void> {
    const [made] = task.entities;
    if (made?.class === 'file') await this.#d.catalogue.operationFailed(made.id, task.row.id);
  }

  /**
   * The file that the result names: a new archive, the extended one, or a new one because that could not be extended;
   * then it takes the first place among the task's entities. The VM's new saved state is heard of first, since it is
   * what the archive can be extended from.
   */
  async #backedUp(nodeId: string, operation: Operation, result: unknown): Promise<unknown> {
    const { catalogue, library, tasks, log } = this.#d;
    const file = BackupFile.fromJSON((result as { file: unknown }).file);
    await this.#refreshDomain(nodeId, file.domainId).catch((error: unknown) =>
      log.warn('the VM was not looked at after its backup', { operation: operation.id, error }),
    );
    const id = await catalogue.backedUp(file, operation.id, await this.#fileOf(nodeId, operation));
    const task = await tasks.find(operation.id);
    if (task && task.entities[0]?.id !== id) {
      const others = task.entities.filter(entity => entity.id !== id);
      await tasks.update(operation.id, { entities: [{ id, class: 'file' }, ...others] });
    }
    await library
      .reread(id)
      .catch((error: unknown) => log.warn('a backup was not read anew', { file: id, error }));
    return library.get(id);
  }

  /**
   * The file that an operation was about: the one that the task is about, and without a task one in a pool that the node has.
   * @throws Error the node tells of another one
   */
  async #fileOf(nodeId: string, operation: Operation): Promise<string> {
    const { catalogue, inventory, tasks } = this.#d;
    const id = entityOf(operation, EntityClass.FILE);
    const task = await tasks.find(operation.id);
    const row = await catalogue.find(id);
    const isIts = task
      ? task.entities.some(entity => entity.id === id)
      : !row || inventory.pools.get(row.pool_id)?.views.has(nodeId) !== false;
    if (!isIts) throw new Error(`the node tells of the file ${id}, which the operation cannot be about`);
    return id;
  }

  /** The copy is what the task made; it is described and protected as its original is. */
  async #copied(nodeId: string, operation: Operation, result: unknown): Promise<unknown> {
    const { catalogue, library, tasks } = this.#d;
    const original = await this.#fileOf(nodeId, operation);
    const id = await catalogue.made(BackupFile.fromJSON((result as { file: unknown }).file), operation.id);
    const row = await catalogue.find(original);
    if (row) await catalogue.update(id, { description: row.description, protected: row.protected });
    const entities = [id, original].map(made => ({ id: made, class: 'file' }));
    if (await tasks.find(operation.id)) await tasks.update(operation.id, { entities });
    return library.get(id);
  }

  #sees(nodeId: string, poolId: string): boolean {
    const view = this.#d.inventory.pools.get(poolId)?.views.get(nodeId);
    return view !== undefined && isUsable(view);
  }

  /** The state's id is known only now; it is what the task made. */
  async #snapshotMade(nodeId: string, operation: Operation, result: unknown): Promise<unknown> {
    const { snapshots, tasks } = this.#d;
    const domainId = entityOf(operation, EntityClass.DOMAIN);
    const { id } = SavedState.fromJSON((result as { snapshot: unknown }).snapshot);
    await this.#refreshDomain(nodeId, domainId);
    const entities = [
      { id, class: 'snapshot' },
      { id: domainId, class: 'domain' },
    ];
    await tasks.update(operation.id, { entities });
    return snapshots.get(domainId, id);
  }

  /** The inventory stream may come after the operation's end; whoever waited for the task must see the change. */
  async #refreshDomain(nodeId: string, id: string): Promise<void> {
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const domain = await this.#clients.get(nodeId)?.domains.get({ id }, { signal });
    if (domain) await this.#d.inventory.domainChanged(nodeId, domain);
  }
}

interface VerifyResult {
  ok: boolean;
  problems: { member: string; reason: string }[];
  verified_at: string;
  hashed: boolean;
  /** Agents of the version before this do not tell. */
  restorable_states?: number[];
  /** An `ArchiveSignature`. */
  signature?: object;
}

function entityOf(operation: Operation, entityClass: EntityClass): string {
  return operation.entities.find(entity => entity.entityClass === entityClass)?.id ?? '';
}
