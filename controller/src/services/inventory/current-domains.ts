/**
 * Asks a node about a VM now. Its inventory stream may come after the end of an operation, and whoever waited for the task
 * must see the change.
 */
import type { AgentClients } from '../../agents/clients.ts';
import type { Inventory } from './inventory.ts';

const CALL_TIMEOUT_MS = 10_000;

export class CurrentDomains {
  readonly #inventory: Inventory;
  readonly #clients = new Map<string, AgentClients>();

  constructor(inventory: Inventory) {
    this.#inventory = inventory;
  }

  /** The node can be asked; before it counts as connected, since what ended while it was away is taken over before. */
  reached(nodeId: string, clients: AgentClients): void {
    this.#clients.set(nodeId, clients);
  }

  lost(nodeId: string): void {
    this.#clients.delete(nodeId);
  }

  /** Takes over what the node says of the VM; nothing while it is away. @throws what the node answers */
  async ask(nodeId: string, id: string): Promise<void> {
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const domain = await this.#clients.get(nodeId)?.domains.get({ id }, { signal });
    if (domain) await this.#inventory.domainChanged(nodeId, domain);
  }

  /** Asks for each VM the node that has it. What cannot be asked now (it is removed, its node is away) is heard of later. */
  async askEach(ids: readonly string[]): Promise<void> {
    for (const id of new Set(ids)) {
      const nodeId = this.#inventory.domains.get(id)?.nodeId;
      if (nodeId !== undefined) await this.ask(nodeId, id).catch(() => {});
    }
  }
}
