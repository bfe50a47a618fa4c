/**
 * One clock per node: the revisions of its inventory. Its inventory stream says up to which revision everything has been told, and
 * the end of an operation says the revision in which what it touched is seen. An end is taken over once the stream has come that
 * far, so whoever waited for a task sees what it did; nobody asks the node again.
 */
import { orAborted } from '@virtkeep/shared/abort';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { Logger } from '@virtkeep/shared/log';
import type { AgentClients } from '../../agents/clients.ts';
import type { Inventory } from './inventory.ts';

/** What an end may say of itself. */
export type EndedAt = Pick<Operation, 'id' | 'inventoryRevision' | 'entities'>;

interface Session {
  clients: AgentClients;
  /** Fires when the connection has ended. */
  ended: AbortSignal;
  /** Everything up to this revision was taken over from the inventory stream; 0: it has said nothing yet. */
  reached: bigint;
  /** It let somebody wait in vain: until it says something again nobody else waits. */
  isSilent: boolean;
  /** Of an earlier version, it let a question wait in vain: until its stream says anything it is asked no more. */
  isDeaf: boolean;
  waiting: Set<{ revision: bigint; resolve: () => void }>;
}

/** The stream says it at once; a node that starts, or a large one that has just connected, needs a moment. */
const WAIT_MS = 10_000;

export class NodeClocks {
  readonly #inventory: Inventory;
  readonly #log: Logger;
  readonly #sessions = new Map<string, Session>();

  constructor(inventory: Inventory, log: Logger) {
    this.#inventory = inventory;
    this.#log = log;
  }

  /**
   * A connection to the node stands, and its inventory is about to be told anew.
   * @param ended fires with its end
   */
  begin(nodeId: string, clients: AgentClients, ended: AbortSignal): void {
    const session = {
      clients,
      ended,
      reached: 0n,
      isSilent: false,
      isDeaf: false,
      waiting: new Set<never>(),
    };
    this.#sessions.set(nodeId, session);
    const forget = () => {
      if (this.#sessions.get(nodeId) === session) this.#sessions.delete(nodeId);
    };
    ended.addEventListener('abort', forget, { once: true });
    if (ended.aborted) forget();
  }

  /** An event of its stream: everything up to this revision is taken over; 0 says nothing of that. */
  reached(nodeId: string, revision: bigint): void {
    const session = this.#sessions.get(nodeId);
    if (!session) return;
    session.isDeaf = false;
    if (revision <= session.reached) return;
    session.reached = revision;
    session.isSilent = false;
    for (const waiter of session.waiting) if (waiter.revision <= revision) waiter.resolve();
  }

  /**
   * Waits until what an operation touched is taken over as its end left it. A node that does not say so in time is believed as it was
   * heard: what it did is seen a little later then.
   * @throws node_unreachable: the connection is over; the end is heard again with the next one
   */
  async seen(nodeId: string, operation: EndedAt): Promise<void> {
    const session = this.#sessions.get(nodeId);
    if (!session) throw this.#unreachable(nodeId);
    if (operation.inventoryRevision === 0n) return this.#ask(nodeId, session, operation);
    if (session.isSilent || session.reached >= operation.inventoryRevision) return;
    const waiter = { revision: operation.inventoryRevision, ...Promise.withResolvers<void>() };
    session.waiting.add(waiter);
    const limit = AbortSignal.timeout(WAIT_MS);
    try {
      await orAborted(waiter.promise, AbortSignal.any([session.ended, limit]));
    } catch {
      if (session.ended.aborted) throw this.#unreachable(nodeId);
      session.isSilent = true;
      this.#log.warn('the inventory of a node is late', { node: nodeId, operation: operation.id });
    } finally {
      session.waiting.delete(waiter);
    }
  }

  /** An agent of an earlier version numbers nothing: it is asked for what the operation names. */
  async #ask(nodeId: string, session: Session, { id, entities }: EndedAt): Promise<void> {
    if (session.isDeaf) return;
    const { clients, ended } = session;
    const limit = AbortSignal.timeout(WAIT_MS);
    const signal = AbortSignal.any([ended, limit]);
    const domains = entities.filter(({ entityClass }) => entityClass === EntityClass.DOMAIN);
    for (const domain of domains) {
      try {
        await this.#inventory.domainChanged(nodeId, await clients.domains.get({ id: domain.id }, { signal }));
      } catch (error) {
        if (ended.aborted) throw this.#unreachable(nodeId);
        session.isDeaf ||= limit.aborted;
        if (hasKey(error, 'domain_not_found')) await this.#inventory.domainRemoved(nodeId, domain.id);
        else
          this.#log.warn('a VM was not looked at', { node: nodeId, operation: id, reason: reasonOf(error) });
      }
    }
  }

  #unreachable(nodeId: string): VirtkeepError {
    const node = this.#inventory.nodes.get(nodeId)?.row.verbose_name ?? nodeId;
    return new VirtkeepError('node_unreachable', { node, reason: 'the connection was closed' });
  }
}
