/**
 * Ends loans between nodes that nobody else ends: the borrower was deleted (by us or by others), lost the disk, or the attaching
 * was interrupted. Only the controller sees both nodes; the agent of a node ends loans within it.
 *
 * It never guesses: the borrower's node must be there and say that the VM is gone or without the disk, in two rounds, so
 * that a loan whose attaching has just begun (by whatever client of the agents) is left alone. A VM that its node cannot
 * read may have the disk.
 */
import type { Domain, Loan } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import type { NodeLinks } from '../../agents/links.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { DomainEntry } from '../inventory/kept-domain.ts';
import type { NodeClocks } from '../inventory/node-clocks.ts';
import type { EventService } from '../journal/events.ts';
import { runOperation } from '../tasks/operation.ts';
import type { TaskService } from '../tasks/tasks.ts';

/** Names of the tasks that lend. */
export const ATTACH_TASK = 'vdisk_attach';
export const DETACH_TASK = 'vdisk_detach';

/** A disk that one VM lends to another. */
export interface FoundLoan {
  owner: DomainEntry;
  loan: Loan;
}

const ROUND_MS = 5_000;

export interface LoanReconcilerDependencies {
  inventory: Inventory;
  clocks: NodeClocks;
  links: NodeLinks;
  tasks: TaskService;
  events: EventService;
  log: Logger;
  /** Time between two looks. */
  roundMs?: number | undefined;
}

export class LoanReconciler {
  readonly #dependencies: LoanReconcilerDependencies;
  /** Loans that were found without a borrower in the last round. */
  #seen = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #round: Promise<void> | undefined;

  constructor(dependencies: LoanReconcilerDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    this.#timer = setInterval(() => void this.round(), this.#dependencies.roundMs ?? ROUND_MS);
    this.#timer.unref();
  }

  /** Waits for the round that is going on. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#round;
  }

  /** The loan of a disk to a VM. */
  loanOf(borrowerId: string, diskId: string): FoundLoan | undefined {
    return this.#loans().find(({ loan }) => loan.borrowerId === borrowerId && loan.diskId === diskId);
  }

  /** Ends a loan on the owner's node. @returns its warnings. @throws node_unreachable, and what the node answers. */
  async giveBack({ owner, loan }: FoundLoan, operationId: string): Promise<string[]> {
    const { clocks, links } = this.#dependencies;
    const clients = links.clients(owner.nodeId);
    const node = { id: owner.nodeId, clients, clocks };
    const { diskId, borrowerId, mark } = loan;
    const request = { ownerId: owner.domain.id, diskId, borrowerId, mark };
    const { warnings } = await runOperation(node, operationId, (id, signal) =>
      clients.disks.return({ operationId: id, ...request }, { signal }),
    );
    return warnings;
  }

  /** Ends what an owner lent to a borrower that does not have it, unless another task is at these two. */
  async settle(pair: { borrowerId: string; ownerId: string; exceptTask: string }): Promise<void> {
    const { borrowerId, ownerId, exceptTask } = pair;
    if (await this.#isBusy(borrowerId, ownerId, exceptTask)) return;
    const found = this.#withoutBorrower().filter(
      ({ owner, loan }) => owner.domain.id === ownerId && loan.borrowerId === borrowerId,
    );
    for (const one of found) await this.#giveBackQuietly(one);
  }

  /** One look at all loans; a loan that was without a borrower in the last one too is ended. */
  round(): Promise<void> {
    const round = this.#round ?? this.#lookOnce();
    this.#round = round;
    return round;
  }

  async #lookOnce(): Promise<void> {
    try {
      await this.#look();
    } catch (error) {
      this.#dependencies.log.error('could not look after the loans', { error });
    } finally {
      this.#round = undefined;
    }
  }

  async #look(): Promise<void> {
    const found = this.#withoutBorrower();
    const before = this.#seen;
    this.#seen = new Set(found.map(keyOf));
    for (const one of found) {
      if (!before.has(keyOf(one))) continue;
      if (await this.#isBusy(one.loan.borrowerId, one.owner.domain.id)) continue;
      await this.#giveBackQuietly(one);
    }
  }

  async #giveBackQuietly(found: FoundLoan): Promise<void> {
    const { inventory, events, log } = this.#dependencies;
    const { owner, loan } = found;
    let warnings: string[];
    try {
      warnings = await this.giveBack(found, newId());
    } catch (error) {
      log.warn('loan not ended, tried again later', { owner: owner.domain.id, disk: loan.diskId, error });
      return;
    }
    const borrower = inventory.domains.get(loan.borrowerId)?.domain.name ?? loan.borrowerId;
    const ended = `A disk of ${owner.domain.name} is no longer lent to ${borrower}, which does not have it any more`;
    await events.record({
      type: warnings.length > 0 ? 'warning' : 'info',
      message: [ended, ...warnings].join('. '),
      entities: [
        { id: owner.domain.id, class: 'domain' },
        { id: loan.diskId, class: 'vdisk' },
        { id: loan.borrowerId, class: 'domain' },
      ],
    });
  }

  /** Loans to other nodes whose borrower has no such disk, by the report of a node that is connected. */
  #withoutBorrower(): FoundLoan[] {
    return this.#loans().filter(({ owner, loan }) => {
      if (loan.borrowerNodeId === '' || !this.#speaks(owner.nodeId)) return false;
      const borrower = this.#dependencies.inventory.domains.get(loan.borrowerId);
      const nodes = borrower ? [borrower.nodeId] : this.#nodesOf(owner, loan);
      if (!nodes.every(nodeId => this.#speaks(nodeId))) return false;
      return borrower === undefined || !mayHaveDisk(borrower.domain, owner.domain.id, loan.diskId);
    });
  }

  /** The nodes on which a borrower may be that none has told of: it may have moved to any that has the disk. */
  #nodesOf({ domain }: DomainEntry, { diskId, borrowerNodeId }: Loan): string[] {
    const { nodes, pools } = this.#dependencies.inventory;
    const poolId = domain.disks.find(({ id }) => id === diskId)?.poolId;
    const views = poolId === undefined ? undefined : pools.get(poolId)?.views;
    return [borrowerNodeId, ...(views ?? nodes).keys()];
  }

  #loans(): FoundLoan[] {
    return this.#dependencies.inventory.domains
      .lenders()
      .flatMap(owner => owner.domain.loans.map(loan => ({ owner, loan })));
  }

  /** The node is there and sees its hypervisor. */
  #speaks(nodeId: string): boolean {
    const { inventory, links } = this.#dependencies;
    const node = inventory.nodes.get(nodeId);
    return node?.info?.libvirtConnected === true && node.row.service_mode === 0 && links.isConnected(nodeId);
  }

  /** An attach or detach of this pair is under way. */
  async #isBusy(borrowerId: string, ownerId: string, exceptTask?: string): Promise<boolean> {
    const open = await this.#dependencies.tasks.unfinished();
    return open.some(({ row, entities }) => {
      if (row.id === exceptTask || (row.name !== ATTACH_TASK && row.name !== DETACH_TASK)) return false;
      const ids = entities.map(entity => entity.id);
      return ids[0] === borrowerId && (ids[2] === undefined || ids[2] === ownerId);
    });
  }
}

/** An attachment whose owner the node does not know any more (the metadata was lost) may be that of any. */
function mayHaveDisk(borrower: Domain, ownerId: string, diskId: string): boolean {
  if (borrower.unreadable) return true;
  return borrower.attachments.some(
    one => one.diskId === diskId && (one.ownerId === ownerId || one.ownerId === ''),
  );
}

function keyOf({ owner, loan }: FoundLoan): string {
  return `${owner.domain.id} ${loan.diskId} ${loan.borrowerId}`;
}
