/**
 * How controllers know each other: both ends show a certificate of the authority they share, with the name of a controller. Each makes its own
 * in memory, for a few days.
 */
import { Agent, type AgentOptions } from 'node:https';
import type { PeerCertificate } from 'node:tls';
import {
  type CertificateAuthority,
  type CertificateUse,
  CONTROLLER_URN,
  type IssuedCertificate,
  issueCertificate,
} from '../pki/index.ts';

const DAYS = 14;
/** After this it is made anew. */
export const PEER_RENEWAL_MS = 86_400_000;
const IDLE_MS = 60_000;
const NAME = 'virtkeep-peer';

export function peerCertificate(ca: CertificateAuthority, use: CertificateUse): Promise<IssuedCertificate> {
  return issueCertificate(ca, {
    commonName: NAME,
    names: { urns: [CONTROLLER_URN], hosts: [NAME] },
    use,
    days: DAYS,
  });
}

export function isController(certificate: PeerCertificate | undefined): boolean {
  return (certificate?.subjectaltname ?? '').split(', ').includes(`URI:${CONTROLLER_URN}`);
}

export interface ForwardingAgents {
  /** Keeps connections to the controller that acts. */
  reads: Agent;
  /**
   * Makes one for each request, so that it is sent only to a controller that has just answered: what goes into a kept one that leads nowhere
   * any more may have been done or not.
   */
  writes: Agent;
}

export async function forwardingAgents(ca: CertificateAuthority): Promise<ForwardingAgents> {
  const own = await peerCertificate(ca, 'client');
  const options: AgentOptions = {
    ca: ca.certificatePem,
    cert: own.chainPem,
    key: own.privateKeyPem,
    servername: NAME,
    minVersion: 'TLSv1.3',
    // it is known by what it is, wherever it is reached
    checkServerIdentity: (_host, certificate) =>
      isController(certificate) ? undefined : new Error('it shows no certificate of a controller'),
  };
  return {
    // the other end keeps for ever what nobody uses
    reads: new Agent({ ...options, keepAlive: true, timeout: IDLE_MS }),
    writes: new Agent({ ...options, keepAlive: false }),
  };
}
