/**
 * How controllers know each other: both ends show a certificate of the authority they share, with the name of a controller. Each makes its own
 * in memory, for a few days.
 */
import { Agent } from 'node:https';
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

/** Keeps connections to the controller that acts. */
export async function forwardingAgent(ca: CertificateAuthority): Promise<Agent> {
  const own = await peerCertificate(ca, 'client');
  return new Agent({
    keepAlive: true,
    // of those that nobody uses; the other end keeps them for ever
    timeout: IDLE_MS,
    ca: ca.certificatePem,
    cert: own.chainPem,
    key: own.privateKeyPem,
    servername: NAME,
    minVersion: 'TLSv1.3',
    // it is known by what it is, wherever it is reached
    checkServerIdentity: (_host, certificate) =>
      isController(certificate) ? undefined : new Error('it shows no certificate of a controller'),
  });
}
