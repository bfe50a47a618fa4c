import 'reflect-metadata';
import { createPrivateKey, randomBytes, sign } from 'node:crypto';
import {
  BasicConstraintsExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509';
import type { SigningIdentity } from './signer.ts';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;
const DAY_MS = 86_400_000;

/** An authority of tests, and certificates of nodes under it. */
export interface TestAuthority {
  caPem: string;
  /** A signature of the authority's own, base64. */
  signBytes(bytes: Buffer): string;
  node(id: string, options?: { days?: number; urns?: string[] }): Promise<SigningIdentity>;
}

const newKeys = () => crypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
const validity = (days: number) => ({
  notBefore: new Date(Date.now() - 30 * DAY_MS),
  notAfter: new Date(Date.now() + days * DAY_MS),
});
const newSerial = () => `01${randomBytes(15).toString('hex')}`;

export async function testAuthority(): Promise<TestAuthority> {
  const keys = await newKeys();
  const ca = await X509CertificateGenerator.createSelfSigned({
    serialNumber: newSerial(),
    name: [{ CN: [`test CA ${randomBytes(4).toString('hex')}`] }],
    ...validity(1),
    keys,
    signingAlgorithm: ALGORITHM,
    extensions: [new BasicConstraintsExtension(true, 0, true)],
  });
  const caKey = createPrivateKey(
    PemConverter.encode(await crypto.subtle.exportKey('pkcs8', keys.privateKey), 'PRIVATE KEY'),
  );
  return {
    caPem: ca.toString('pem'),
    signBytes: bytes => sign('sha256', bytes, caKey).toString('base64'),
    async node(nodeId, { days = 1, urns = [`urn:virtkeep:node:${nodeId}`] } = {}) {
      const { privateKey, publicKey } = await newKeys();
      const certificate = await X509CertificateGenerator.create({
        serialNumber: newSerial(),
        issuer: ca.subject,
        subject: [{ CN: [nodeId] }],
        ...validity(days),
        publicKey,
        signingKey: keys.privateKey,
        signingAlgorithm: ALGORITHM,
        extensions: [
          new BasicConstraintsExtension(false, undefined, true),
          new SubjectAlternativeNameExtension(urns.map(value => ({ type: 'url' as const, value }))),
        ],
      });
      const key = await crypto.subtle.exportKey('pkcs8', privateKey);
      return {
        nodeId,
        keyPem: PemConverter.encode(key, 'PRIVATE KEY'),
        certificatePem: certificate.toString('pem'),
        caPem: ca.toString('pem'),
      };
    },
  };
}
