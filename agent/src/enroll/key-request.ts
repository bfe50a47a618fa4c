import 'reflect-metadata';
import {
  PemConverter,
  Pkcs10CertificateRequestGenerator,
  SubjectAlternativeNameExtension,
} from '@peculiar/x509';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;

export interface KeyRequest {
  /** PKCS #8, PEM; never leaves the node. */
  keyPem: string;
  /** PKCS #10, PEM: proof of the key, with the node's URN as the name asked for. */
  csrPem: string;
}

/** A new EC P-256 key and the request for its certificate. */
export async function newKeyRequest(nodeId: string, hostname: string): Promise<KeyRequest> {
  const keys = await crypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const request = await Pkcs10CertificateRequestGenerator.create({
    // RFC 5280 bounds a common name to 64 characters.
    name: [{ CN: [hostname.slice(0, 64)] }],
    keys,
    signingAlgorithm: ALGORITHM,
    extensions: [
      new SubjectAlternativeNameExtension([{ type: 'url', value: `urn:virtkeep:node:${nodeId}` }]),
    ],
  });
  const key = PemConverter.encode(await crypto.subtle.exportKey('pkcs8', keys.privateKey), 'PRIVATE KEY');
  return { keyPem: `${key}\n`, csrPem: `${request.toString('pem')}\n` };
}
