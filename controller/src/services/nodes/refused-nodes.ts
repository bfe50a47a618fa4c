/** Reports machines that stand in a node's place and are not believed: once for each certificate, not at each try. */
import { reasonOf } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import type { NodeCertificate } from '../../agents/clients.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { EventService } from '../journal/events.ts';
import type { CertificateRegister } from './certificate-register.ts';

export class RefusedNodes {
  readonly #register: CertificateRegister;
  readonly #inventory: Inventory;
  readonly #events: EventService;
  readonly #log: Logger;
  /** By node the serial that was reported last. */
  readonly #lastSerials = new Map<string, string>();

  constructor(register: CertificateRegister, inventory: Inventory, events: EventService, log: Logger) {
    this.#register = register;
    this.#inventory = inventory;
    this.#events = events;
    this.#log = log;
  }

  /** Why the node is not believed; undefined: it is. */
  refusal(nodeId: string, shown: NodeCertificate): string | undefined {
    const reason = this.#register.refusal(nodeId, shown);
    if (reason === undefined) this.#lastSerials.delete(nodeId);
    else if (this.#lastSerials.get(nodeId) !== shown.serial) this.#tell(nodeId, shown.serial, reason);
    return reason;
  }

  #tell(nodeId: string, serial: string, reason: string): void {
    const row = this.#inventory.nodes.get(nodeId)?.row;
    if (!row) return;
    this.#lastSerials.set(nodeId, serial);
    const place = `The machine at ${row.address} ${reason} (serial ${serial}).`;
    const remedy = `If it is the node, enrol it again with a token of "virtkeep-controller node token --replace ${nodeId}".`;
    this.#log.warn('a machine in the place of a node was refused', { node: nodeId, reason, serial });
    this.#events
      .record({
        type: 'warning',
        message: `Node ${row.verbose_name} is not believed`,
        detailMessage: `${place} ${remedy}`,
        entities: [{ id: nodeId, class: 'node' }],
      })
      .catch(error => this.#log.error('event not written', { error: reasonOf(error) }));
  }
}
