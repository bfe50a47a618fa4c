/**
 * What the controller makes of a node's streams: its inventory, the progress of its operations, its coming and going. What
 * the end of an operation means, the service says whose action it is (`tasks/ends.ts`).
 */

import { hasKey } from '@virtkeep/shared/errors';
import type { InventoryEvent, Question, UseAnswer } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import {
  type Operation,
  type OperationEvent,
  OperationState,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { Logger } from '@virtkeep/shared/log';
import type { AgentClients } from '../../agents/clients.ts';
import type { LinkObserver } from '../../agents/link.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import { workOf } from '../backup-files/file-work.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { NodeClocks } from '../inventory/node-clocks.ts';
import type { EventService } from '../journal/events.ts';
import type { PoolService } from '../pools/pools.ts';
import { hasFiles } from '../pools/record.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';
import { isFinal } from '../tasks/record.ts';
import type { TaskService, TaskState } from '../tasks/tasks.ts';
import type { CertificateRegister } from './certificate-register.ts';
import type { OtherNodes } from './other-nodes.ts';
import type { RevocationService } from './revocations.ts';

export interface ObserverDependencies {
  inventory: Inventory;
  clocks: NodeClocks;
  register: CertificateRegister;
  revocations: RevocationService;
  backupFiles: BackupFiles;
  tasks: TaskService;
  nodeTasks: NodeTasks;
  pools: PoolService;
  otherNodes: OtherNodes;
  events: EventService;
  log: Logger;
  /** How long a node may be away before its tasks count as lost. */
  graceMs: number;
}

const CALL_TIMEOUT_MS = 10_000;
/** The position in the stream is written with every outcome, and at least this often. */
const SEQUENCE_INTERVAL_MS = 5000;

export class NodeObserver implements LinkObserver {
  #attached: ObserverDependencies | undefined;
  readonly #lossTimers = new Map<string, NodeJS.Timeout>();
  /** How far each has come since its time began. */
  readonly #steps = new Map<string, readonly ('answered' | 'taken')[]>();
  readonly #sequences = new Map<string, { value: bigint; writtenAt: number }>();

  /** Called once, before any link is started; the links themselves need the observer to be made. */
  attach(dependencies: ObserverDependencies): void {
    this.#attached = dependencies;
  }

  get #dependencies(): ObserverDependencies {
    if (!this.#attached) throw new Error('the observer is not attached');
    return this.#attached;
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
    const { nodeTasks, inventory, clocks } = this.#dependencies;
    this.#extendLossTimer(nodeId, 'taken');
    // before anything is waited for: the first inventory may come meanwhile
    clocks.begin(nodeId, clients, signal);
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
   * Busy files whose task has ended already: the task was given up while the node was away, or the controller stopped before
   * the file was set right. The node says how the operation ended; an operation that it does not know did nothing.
   */
  async #settleFiles(nodeId: string, clients: AgentClients, ended: AbortSignal): Promise<void> {
    const { backupFiles, tasks } = this.#dependencies;
    for (const file of await backupFiles.busyOn(nodeId)) {
      const task = await workOf(file, tasks);
      if (task?.row.node_id !== nodeId || !isFinal(task.row.status)) continue;
      const signal = AbortSignal.any([ended, AbortSignal.timeout(CALL_TIMEOUT_MS)]);
      const operation = await clients.operations
        .get({ id: task.row.id, refuseUnknown: true }, { signal })
        .catch((error: unknown) => {
          if (hasKey(error, 'operation_not_found')) return undefined;
          throw error;
        });
      if (operation?.state === OperationState.SUCCEEDED) await this.#settleSucceeded(nodeId, operation, task);
      else if (operation?.state !== OperationState.RUNNING)
        await backupFiles.operationFailed(file.id, task.row.id);
    }
  }

  /** One that cannot be taken over keeps its file busy, and not its node away. */
  async #settleSucceeded(nodeId: string, operation: Operation, task: TaskState): Promise<void> {
    const { nodeTasks, log } = this.#dependencies;
    if (task.row.status !== 'SUCCESS') return nodeTasks.apply(nodeId, operation);
    await nodeTasks.takeOver(nodeId, operation).catch((error: unknown) => {
      log.error('could not take the result of an operation over', { operation: operation.id, error });
    });
  }

  async inventory(nodeId: string, event: InventoryEvent): Promise<void> {
    const { inventory, clocks } = this.#dependencies;
    const couldSee = this.#canSee(nodeId);
    await inventory.apply(nodeId, event);
    clocks.reached(nodeId, event.revision);
    if (!couldSee && this.#canSee(nodeId)) void this.#scanPools(nodeId);
  }

  /** Until its libvirt is there, what is known of its pools is of before. */
  #canSee(nodeId: string): boolean {
    return this.#dependencies.inventory.nodes.get(nodeId)?.info?.libvirtConnected === true;
  }

  async operation(nodeId: string, event: OperationEvent): Promise<void> {
    if (event.operation) await this.#dependencies.nodeTasks.apply(nodeId, event.operation);
    const place = this.#sequences.get(nodeId);
    if (!place) return;
    place.value = event.sequence;
    const ended = event.operation?.state !== OperationState.RUNNING;
    if (ended || Date.now() - place.writtenAt > SEQUENCE_INTERVAL_MS) await this.#writeSequence(nodeId);
  }

  async #writeSequence(nodeId: string): Promise<void> {
    const place = this.#sequences.get(nodeId);
    if (!place || !this.#dependencies.inventory.nodes.has(nodeId)) return;
    place.writtenAt = Date.now();
    await this.#dependencies.inventory.updateNode(nodeId, { operation_sequence: Number(place.value) }, false);
  }

  connected(nodeId: string, clients: AgentClients): void {
    this.#stopLossTimer(nodeId);
    const { log, nodeTasks } = this.#dependencies;
    for (const work of [
      this.#dependencies.revocations.tell(nodeId, clients),
      nodeTasks.connected(nodeId),
      this.#afterConnect(nodeId),
    ])
      work.catch((error: unknown) =>
        log.warn('not everything was done after the node returned', { node: nodeId, error }),
      );
  }

  async #afterConnect(nodeId: string): Promise<void> {
    const { inventory, register, pools, events } = this.#dependencies;
    await register.connected(nodeId);
    const name = inventory.node(nodeId).row.verbose_name;
    await inventory.updateNode(nodeId, { last_seen: new Date().toISOString() });
    const entities = [{ id: nodeId, class: 'node' }];
    await events.record({ type: 'info', message: `Node ${name} is connected`, entities });
    await pools.pushMarks(nodeId);
    if (this.#canSee(nodeId)) await this.#scanPools(nodeId);
  }

  async #scanPools(nodeId: string): Promise<void> {
    const { inventory, pools } = this.#dependencies;
    const scannable = [...inventory.pools].filter(([, entry]) => {
      const view = entry.views.get(nodeId);
      return view !== undefined && hasFiles(view);
    });
    const poolIds = scannable.map(([id]) => id);
    await pools.scanOfReturned(nodeId, poolIds);
  }

  question(nodeId: string, question: Question): Promise<UseAnswer[]> {
    return this.#dependencies.otherNodes.answer(nodeId, question);
  }

  async lost(nodeId: string, reason: string): Promise<void> {
    const { inventory, events } = this.#dependencies;
    // whatever cannot be written now: nobody else begins its time
    this.startLossTimer(nodeId);
    if (!inventory.nodes.has(nodeId)) return;
    await inventory.nodeAway(nodeId);
    await this.#writeSequence(nodeId);
    await inventory.updateNode(nodeId, { last_seen: new Date().toISOString() });
    const message = `Node ${inventory.node(nodeId).row.verbose_name} is not reachable`;
    await events.record({
      type: 'warning',
      message,
      detailMessage: reason,
      entities: [{ id: nodeId, class: 'node' }],
    });
  }

  /** A node that is not there yet: its time begins with the first attempt to reach it, not while that waits behind others. */
  begins(nodeId: string): void {
    if (!this.#lossTimers.has(nodeId)) this.startLossTimer(nodeId);
  }

  /** Unless the node comes back in time, its tasks are LOST; what cannot be written then is tried again after the same time. */
  startLossTimer(nodeId: string): void {
    this.#stopLossTimer(nodeId);
    const { tasks, log, graceMs } = this.#dependencies;
    const timer = setTimeout(() => {
      tasks.markLost(nodeId).catch((error: unknown) => {
        log.error('could not mark tasks lost', { node: nodeId, error });
        // it may be back, or have its time anew
        if (this.#lossTimers.get(nodeId) === timer) this.startLossTimer(nodeId);
      });
    }, graceMs);
    timer.unref();
    this.#lossTimers.set(nodeId, timer);
  }

  /** Its inventory may wait until those of others are taken over. */
  answered(nodeId: string): void {
    this.#extendLossTimer(nodeId, 'answered');
  }

  /** It has come a step further, so it has its time anew; once each, or one that comes no further would have it for ever. */
  #extendLossTimer(nodeId: string, step: 'answered' | 'taken'): void {
    const steps = this.#steps.get(nodeId) ?? [];
    if (!this.#lossTimers.has(nodeId) || steps.includes(step)) return;
    this.startLossTimer(nodeId);
    this.#steps.set(nodeId, [...steps, step]);
  }

  #stopLossTimer(nodeId: string): void {
    clearTimeout(this.#lossTimers.get(nodeId));
    this.#lossTimers.delete(nodeId);
    this.#steps.delete(nodeId);
  }

  stop(): void {
    for (const nodeId of [...this.#lossTimers.keys()]) this.#stopLossTimer(nodeId);
  }
}
