/** Renewal of the nodes' certificates: asked for, signed and installed while they still have a third of their life. */
import type { Logger } from '@virtkeep/shared/log';
import type { AgentClients, PeerValidity } from '../../agents/clients.ts';
import type { NodeLinks } from '../../agents/links.ts';
import { type CertificateAuthority, signNodeRequest } from '../../pki/index.ts';
import type { Inventory } from '../inventory/inventory.ts';
import { type CertificateRegister, fingerprintOf } from './certificate-register.ts';

const CALL_TIMEOUT_MS = 60_000;

export interface CertificateRenewerDependencies {
  ca: CertificateAuthority;
  register: CertificateRegister;
  links: NodeLinks;
  inventory: Inventory;
  log: Logger;
}

export class CertificateRenewer {
  readonly #dependencies: CertificateRenewerDependencies;
  /** A node shows its new certificate with its next connection only; until then we know of it here. */
  readonly #renewed = new Set<string>();

  constructor(dependencies: CertificateRenewerDependencies) {
    this.#dependencies = dependencies;
  }

  /** Renews what is due; a node that fails is tried again at the next round. @returns the nodes renewed. */
  async round(now = Date.now()): Promise<string[]> {
    const renewed: string[] = [];
    for (const { nodeId, clients, peer } of this.#dependencies.links.connected()) {
      if (!peer || !isDue(peer, now)) {
        this.#renewed.delete(nodeId);
        continue;
      }
      if (this.#renewed.has(nodeId)) continue;
      try {
        await this.renew(nodeId, clients);
        renewed.push(nodeId);
      } catch (error) {
        this.#dependencies.log.error('certificate of the node not renewed', { node: nodeId, error });
      }
    }
    return renewed;
  }

  /** @throws VirtkeepError invalid_field when the node's request is not acceptable, and what the node answers. */
  async renew(nodeId: string, clients: AgentClients): Promise<void> {
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const { csrPem } = await clients.node.renewCertificate({}, { signal });
    const certificatePem = await signNodeRequest(this.#dependencies.ca, csrPem, nodeId);
    await this.#dependencies.register.issued(nodeId, certificatePem);
    await clients.node.installCertificate({ certificatePem }, { signal });
    await this.#dependencies.inventory.updateNode(
      nodeId,
      { certificate_fingerprint: fingerprintOf(certificatePem) },
      false,
    );
    this.#renewed.add(nodeId);
    this.#dependencies.log.info('certificate of the node renewed', { node: nodeId });
  }
}

/** Less than a third of the certificate's life remains, or it bears names that earlier versions took from the node. */
export function isDue(peer: PeerValidity, now: number): boolean {
  return peer.hasForeignNames || peer.notAfter - now < (peer.notAfter - peer.notBefore) / 3;
}
