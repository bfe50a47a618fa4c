/**
 * Lending disks of one VM, read-only, to another (specification 4.1 and 4.2). One task for its user, whose operation is
 * that of the borrower's node. When the owner is on another node, its node lends the disk before and takes it back
 * afterwards, as parts of the same task: `Lend` → `Attach`, `Detach` → `Return`.
 *
 * The controller stores nothing of this. After a restart the borrower's node reports the end of the task's operation. A disk that
 * was lent and is not attached goes back: by the task when it fails, else by the reconciler.
 */
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { DiskSource } from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import { uuidV5 } from '@virtkeep/shared/ids';
import { required, resultOf } from '@virtkeep/shared/operation-result';
import type { NodeLinks } from '../../agents/links.ts';
import type { Actor } from '../../auth/principal.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { DomainEntry } from '../inventory/kept-domain.ts';
import type { NodeClocks } from '../inventory/node-clocks.ts';
import type { EndedOperation } from '../tasks/ends.ts';
import type { NodeAction, NodeTasks } from '../tasks/node-tasks.ts';
import { runOperation } from '../tasks/operation.ts';
import type { TaskEntity } from '../tasks/record.ts';
import type { TaskOutcome, TaskState, TaskSuccess } from '../tasks/tasks.ts';
import {
  type AttachedRecord,
  attachedRecord,
  type DetachedRecord,
  detachedRecord,
  namesDisk,
} from './attachment-record.ts';
import { ATTACH_TASK, DETACH_TASK, type FoundLoan, type LoanReconciler } from './reconciler.ts';
import type { OwnedDisk } from './vdisks.ts';
import { LendableDisks, type LentDisk } from './which-disk.ts';

export interface LendingServiceDependencies {
  inventory: Inventory;
  links: NodeLinks;
  nodeTasks: NodeTasks;
  clocks: NodeClocks;
  reconciler: LoanReconciler;
}

export class LendingService {
  readonly #dependencies: LendingServiceDependencies;
  readonly #lendable: LendableDisks;

  constructor(dependencies: LendingServiceDependencies) {
    this.#dependencies = dependencies;
    this.#lendable = new LendableDisks(dependencies.inventory);
    const { ends } = dependencies.nodeTasks;
    ends.succeeded({
      attach_disk: ended => this.#attached(ended),
      detach_disk: ended => this.#detached(ended),
      return_disk: ended => this.#returned(ended),
    });
    ends.followUp({
      [ATTACH_TASK]: (task, outcome) => this.#afterAttach(task, outcome),
      [DETACH_TASK]: (task, outcome) => this.#afterDetach(task, outcome),
    });
  }

  /**
   * Attaches a disk of another VM. What the state of the two VMs refuses is their nodes' decision.
   * @throws domain_not_found, domain_on_several_nodes, domain_runs_twice, vdisk_not_found, attached_object_given,
   * invalid_thin_clone, vdisk_unreachable, node_unreachable, node_in_service, and what the borrower's node answers.
   */
  async attach(
    borrowerId: string,
    lent: LentDisk & { allowNetworkLayers: boolean },
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    const borrower = this.#dependencies.inventory.oneDomain(borrowerId);
    const owner = this.#lendable.ownerOf(lent);
    // a template's disks never change, wherever else it is defined
    if (!owner.entry.domain.template) this.#dependencies.inventory.oneDomain(owner.entry.domain.id);
    const thinCloneId = lent.thin_clone ?? '';
    const diskId = this.#lendable.nameOf(owner, lent);
    const request = {
      domainId: borrowerId,
      diskId,
      thinCloneId,
      allowNetworkLayers: lent.allowNetworkLayers,
    };
    const action = {
      taskId,
      name: ATTACH_TASK,
      verboseName: `Attach a disk of ${owner.entry.domain.name} to ${borrower.domain.name}`,
      user,
      nodeId: borrower.nodeId,
      entities: entitiesOf(borrowerId, lent.vdisk, owner.entry.domain.id),
    };
    if (owner.entry.nodeId !== borrower.nodeId) return this.#attachFromAfar(action, request, owner, borrower);
    return this.#dependencies.nodeTasks.start({
      ...action,
      send: (clients, operationId, signal) => clients.disks.attach({ operationId, ...request }, { signal }),
    });
  }

  async #attachFromAfar(
    action: Omit<NodeAction, 'send'>,
    request: { domainId: string; diskId: string; thinCloneId: string; allowNetworkLayers: boolean },
    owner: OwnedDisk,
    borrower: DomainEntry,
  ): Promise<TaskState> {
    const ownerNode = owner.entry.nodeId;
    this.#lendable.assertReachable(owner, borrower.nodeId);
    this.#dependencies.nodeTasks.assertReady(ownerNode);
    let source: DiskSource | undefined;
    return this.#dependencies.nodeTasks.begin({
      ...action,
      prepare: async () => {
        const { domainId: borrowerId, ...disk } = request;
        const loan = { ...disk, borrowerId, borrowerNodeId: borrower.nodeId };
        const { links, clocks } = this.#dependencies;
        const clients = links.clients(ownerNode);
        const node = { id: ownerNode, clients, clocks };
        const lending = await runOperation(node, partId(action.taskId, 'lend'), (operationId, signal) =>
          clients.disks.lend({ operationId, ...loan }, { signal }),
        );
        source = required(resultOf(lending, 'lendDisk').source, 'source');
      },
      send: (clients, operationId, signal) =>
        clients.disks.attach({ operationId, ...request, source }, { signal }),
    });
  }

  /**
   * Detaches a disk of another VM, by the id of the original.
   * @throws domain_not_found, node_unreachable, node_in_service, and what the borrower's node answers.
   */
  async detach(borrowerId: string, lent: LentDisk, user: Actor, taskId: string): Promise<TaskState> {
    const borrower = this.#dependencies.inventory.domains.get(borrowerId);
    if (borrower === undefined) return this.#endStrayLoan(borrowerId, lent, user, taskId);
    const { domain, nodeId } = borrower;
    const { diskId, thinCloneId, ownerId } = this.#lendable.attachedAs(borrower, lent);
    const owner = this.#dependencies.inventory.domains.get(ownerId)?.domain.name ?? 'another VM';
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: DETACH_TASK,
      verboseName: `Detach a disk of ${owner} from ${domain.name}`,
      user,
      nodeId,
      entities: entitiesOf(borrowerId, lent.vdisk, ownerId),
      send: (clients, operationId, signal) =>
        clients.disks.detach({ operationId, domainId: borrowerId, diskId, thinCloneId }, { signal }),
    });
  }

  /**
   * Ends a loan to a VM that no node tells of: of a node that was removed, or whose node says that it is gone while another that has the
   * disk is away. Only the user can say that it is over.
   */
  async #endStrayLoan(
    borrowerId: string,
    { vdisk }: LentDisk,
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    const found = this.#dependencies.reconciler.loanOf(borrowerId, vdisk);
    const { inventory, links } = this.#dependencies;
    const isUnheard = (nodeId: string) => inventory.nodes.has(nodeId) && !links.isConnected(nodeId);
    if (found === undefined || isUnheard(found.loan.borrowerNodeId))
      throw new VirtkeepError('domain_not_found', { id: borrowerId });
    const { domain, nodeId } = found.owner;
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: DETACH_TASK,
      verboseName: `Take a disk of ${domain.name} back`,
      user,
      nodeId,
      entities: entitiesOf(borrowerId, vdisk, domain.id),
      send: (clients, operationId, signal) =>
        clients.disks.return(
          { operationId, ownerId: domain.id, diskId: vdisk, borrowerId, mark: found.loan.mark },
          { signal },
        ),
    });
  }

  /** The task's record once the disk is attached. */
  async #attached({ operation, task }: EndedOperation): Promise<AttachedRecord> {
    const result = resultOf(operation, 'attachDisk');
    const [, requestedDisk = ''] = idsOf(task);
    // a node that gets a disk of another node does not know what was asked for instead
    const warnings =
      result.warnings.length > 0 ? result.warnings : this.#lendable.warningsOf(requestedDisk, result.ownerId);
    const owner = this.#dependencies.inventory.domains.get(result.ownerId)?.domain;
    return attachedRecord({ ...result, warnings }, owner);
  }

  /** The task's record once the disk is detached. */
  async #detached({ operation }: EndedOperation): Promise<DetachedRecord> {
    const { vdisk, ownerId, domainId } = resultOf(operation, 'detachDisk');
    return detachedRecord(vdisk, domainId, this.#dependencies.inventory.domains.get(ownerId)?.domain);
  }

  /** The record of a detaching that only ended a loan. */
  async #returned({ task }: EndedOperation): Promise<DetachedRecord | undefined> {
    const [borrower, vdisk, owner] = idsOf(task);
    if (!borrower || !vdisk || !owner) return undefined;
    return detachedRecord(vdisk, borrower, this.#dependencies.inventory.domains.get(owner)?.domain);
  }

  /**
   * After a detaching the disk goes back on the owner's node. That it cannot be done now fails nothing: the reconciler goes on.
   */
  #afterDetach(task: TaskState, outcome: TaskOutcome): Promise<TaskOutcome> | undefined {
    if (outcome.status !== 'SUCCESS' || !namesDisk(outcome.result)) return undefined;
    // for the VM of the request, whatever the node reports; its disk may be that of a thin clone, which only the node knows
    const [borrowerId = ''] = idsOf(task);
    const found = this.#dependencies.reconciler.loanOf(borrowerId, outcome.result.vdisk);
    const isElsewhere = found && found.owner.nodeId !== task.row.node_id;
    return isElsewhere ? this.#giveBack(task, found, outcome) : undefined;
  }

  /** What was lent on the owner's node for an attaching that failed goes back there. */
  #afterAttach(task: TaskState, outcome: TaskOutcome): Promise<TaskOutcome> | undefined {
    if (outcome.status === 'SUCCESS') return undefined;
    const [borrowerId = '', , ownerId = ''] = idsOf(task);
    const ownerNode = this.#dependencies.inventory.domains.get(ownerId)?.nodeId;
    const isElsewhere = ownerNode !== undefined && ownerNode !== task.row.node_id;
    return isElsewhere ? this.#undo(task, borrowerId, ownerId, outcome) : undefined;
  }

  async #giveBack(task: TaskState, found: FoundLoan, outcome: TaskSuccess): Promise<TaskOutcome> {
    const { owner, loan } = found;
    const warnings = await this.#dependencies.reconciler
      .giveBack(found, partId(task.row.id, 'return'))
      .catch((error: unknown) => [
        `The disk is detached. The node of ${owner.domain.name} is asked again later to end the loan: ${reasonOf(error)}`,
      ]);
    const message = [outcome.message, ...warnings].filter(Boolean).join(' ');
    const now = this.#dependencies.inventory.domains.get(owner.domain.id)?.domain;
    const result = detachedRecord(loan.diskId, loan.borrowerId, now);
    return { ...outcome, result, ...(message === '' ? {} : { message }) };
  }

  async #undo(
    task: TaskState,
    borrowerId: string,
    ownerId: string,
    outcome: TaskOutcome,
  ): Promise<TaskOutcome> {
    await this.#dependencies.reconciler.settle({ borrowerId, ownerId, exceptTask: task.row.id });
    return outcome;
  }
}

/** The VM that changes comes first, then the disk and its owner. */
function entitiesOf(borrowerId: string, vdisk: string, ownerId: string): TaskEntity[] {
  const owner = ownerId === '' ? [] : [{ id: ownerId, class: 'domain' }];
  return [{ id: borrowerId, class: 'domain' }, { id: vdisk, class: 'vdisk' }, ...owner];
}

/** Id of an operation that is a part of a task; the same when the task is continued. */
function partId(taskId: string, part: 'lend' | 'return'): string {
  return uuidV5(taskId, part);
}

function idsOf(task: TaskState | undefined): string[] {
  return (task?.entities ?? []).map(({ id }) => id);
}
