/**
 * The node's identity on disk, in the directory of the setting `tls.dir`:
 *
 * - `identity.pem`: private key and certificate in one file (0600), so that a renewal replaces both at once;
 * - `ca.pem`: the controller's authority, the only one whose client certificates the agent accepts.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigError } from '@virtkeep/shared/config';
import { writeDurably } from '@virtkeep/shared/durable-file';
import { reasonOf } from '@virtkeep/shared/errors';
import { serialOf } from '@virtkeep/shared/serials';
import type { TlsMaterial } from './credentials.ts';

const NODE_URI = /^URI:urn:virtkeep:node:([0-9a-f-]{36})$/;

export interface Identity extends TlsMaterial {
  /** UUID of the node, out of its certificate. */
  nodeId: string;
  /** Of the certificate, as `serialOf` makes it. */
  serial: string;
  /** End of the certificate's life. */
  expires: Date;
}

/** @throws ConfigError when the node is not enrolled, or the files cannot be used. */
export function loadIdentity(directory: string): Identity {
  try {
    const identityPem = readFileSync(join(directory, 'identity.pem'), 'utf8');
    const caPem = readFileSync(join(directory, 'ca.pem'), 'utf8');
    return toIdentity({ keyPem: identityPem, certificatePem: identityPem, caPem });
  } catch (error) {
    throw new ConfigError(
      `this node has no usable certificate in ${directory} (${reasonOf(error)}). Enrol it: make a token with ` +
        '"virtkeep-controller node token" on the controller, then run "virtkeep-agent enroll --config FILE --controller URL --token - < FILE-WITH-THE-TOKEN".',
    );
  }
}

/** Stores key, certificate and authority; each file is replaced as a whole. @throws the file system's errors. */
export async function storeIdentity(directory: string, material: TlsMaterial): Promise<void> {
  await writeDurably(join(directory, 'ca.pem'), material.caPem, 0o644);
  const identityPem = `${material.keyPem.trim()}\n${material.certificatePem.trim()}\n`;
  await writeDurably(join(directory, 'identity.pem'), identityPem, 0o600);
}

/** Checks that key, certificate and authority belong together. @throws Error saying what does not. */
export function toIdentity(material: TlsMaterial): Identity {
  const certificate = new X509Certificate(material.certificatePem);
  const ca = new X509Certificate(material.caPem);
  if (!certificate.verify(ca.publicKey))
    throw new Error('the certificate was not issued by the authority in ca.pem');
  if (!certificate.checkPrivateKey(createPrivateKey(material.keyPem)))
    throw new Error('the certificate is for another private key');
  const nodeId = certificate.subjectAltName
    ?.split(', ')
    .map(name => NODE_URI.exec(name)?.[1])
    .find(id => id !== undefined);
  if (!nodeId) throw new Error('the certificate does not name a node (urn:virtkeep:node:<uuid>)');
  const serial = serialOf(certificate.serialNumber);
  return { ...material, nodeId, serial, expires: new Date(certificate.validTo) };
}
