/**
 * The X.509 library, set up once: it needs reflect-metadata to be loaded before it. Keys are EC P-256 everywhere
 * (small, fast, known to every TLS stack of the last ten years).
 */
import 'reflect-metadata';
import type { webcrypto } from 'node:crypto';
import * as x509 from '@peculiar/x509';

export { x509 };

// Node's types name these only under the webcrypto namespace.
export type CryptoKeyPair = webcrypto.CryptoKeyPair;

export const KEY_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Validity of a certificate made now; it begins an hour ago so that a node's slow clock does not refuse it. */
export function validity(days: number, now = Date.now()): { notBefore: Date; notAfter: Date } {
  return { notBefore: new Date(now - HOUR_MS), notAfter: new Date(now + days * DAY_MS) };
}

/** True when less than a third of the certificate's life remains (or none of it). */
export function needsRenewal(certificatePem: string, now = Date.now()): boolean {
  const certificate = new x509.X509Certificate(firstCertificate(certificatePem));
  const begin = certificate.notBefore.getTime();
  const end = certificate.notAfter.getTime();
  return end - now < (end - begin) / 3;
}

/** The first certificate of a PEM chain: the leaf. */
export function firstCertificate(pem: string): string {
  const end = pem.indexOf('-----END CERTIFICATE-----');
  return end === -1 ? pem : `${pem.slice(0, end)}-----END CERTIFICATE-----\n`;
}

export async function newKeyPair(): Promise<CryptoKeyPair> {
  return crypto.subtle.generateKey(KEY_ALGORITHM, true, ['sign', 'verify']);
}

export async function exportPrivateKey(key: webcrypto.CryptoKey): Promise<string> {
  return `${x509.PemConverter.encode(await crypto.subtle.exportKey('pkcs8', key), 'PRIVATE KEY')}\n`;
}

/** Reads a PKCS #8 PEM private key together with its public half. */
export async function importKeyPair(privateKeyPem: string): Promise<CryptoKeyPair> {
  const [der] = x509.PemConverter.decode(privateKeyPem);
  if (!der) throw new Error('no private key in the file');
  const privateKey = await crypto.subtle.importKey('pkcs8', der, KEY_ALGORITHM, true, ['sign']);
  const { d: _private, key_ops: _signs, ...publicHalf } = await crypto.subtle.exportKey('jwk', privateKey);
  const publicKey = await crypto.subtle.importKey('jwk', publicHalf, KEY_ALGORITHM, true, ['verify']);
  return { privateKey, publicKey };
}
