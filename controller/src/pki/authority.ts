/**
 * The controller's own certificate authority. It signs the agents' server certificates, the controller's client
 * certificate for gRPC, the self-made HTTPS certificate and the client certificates of other services. A leaf is either
 * a server or a client, never both: a node's certificate cannot be used to command another node.
 */
import { createHash, createPrivateKey, type KeyObject, randomBytes, sign } from 'node:crypto';
import { isIP } from 'node:net';
import type { Keys } from '../keys/keys.ts';
import { type CertificateNames, isHost } from './names.ts';
import {
  type CryptoKeyPair,
  exportPrivateKey,
  importKeyPair,
  KEY_ALGORITHM,
  newKeyPair,
  validity,
  x509,
} from './x509.ts';

export type CertificateUse = 'server' | 'client';

export interface IssuedCertificate {
  /** The leaf followed by the CA's certificate: what a TLS server or client sends. */
  chainPem: string;
  certificatePem: string;
  /** PKCS #8. */
  privateKeyPem: string;
}

export interface CertificateAuthority {
  readonly certificatePem: string;
  /** SHA-256 of the certificate's DER, lower-case hex: the pin inside an enrolment token. */
  readonly fingerprint: string;
  /** Signs a public key. @returns the certificate, PEM. */
  sign(request: SignRequest): Promise<string>;
  /** ECDSA with SHA-256, base64. */
  signBytes(bytes: Buffer): string;
}

export interface SignRequest {
  publicKey: x509.PublicKeyType;
  commonName: string;
  names: CertificateNames;
  use: CertificateUse;
  days: number;
}

const CA_DAYS = 3653;
export const LEAF_DAYS = 397;

/**
 * Opens the authority of these keys, making it at first start: `pki/ca.key` and `pki/ca.crt`, valid ten years. Two controllers starting
 * at once end up with the same authority.
 * @throws when the keys cannot be read or written (main prints it and ends).
 */
export async function ensureCa(kept: Keys): Promise<CertificateAuthority> {
  const newKey = async () => exportPrivateKey((await newKeyPair()).privateKey);
  const key = await kept.readOrMake('pki/ca.key', newKey);
  const keys = await importKeyPair(key.toString('utf8'));
  const certificate = await kept.readOrMake('pki/ca.crt', () => selfSign(keys));
  return openAuthority(certificate.toString('utf8'), keys, createPrivateKey(key));
}

async function openAuthority(
  pem: string,
  keys: CryptoKeyPair,
  privateKey: KeyObject,
): Promise<CertificateAuthority> {
  const certificate = new x509.X509Certificate(pem);
  const der = Buffer.from(certificate.rawData);
  return {
    certificatePem: `${certificate.toString('pem')}\n`,
    fingerprint: createHash('sha256').update(der).digest('hex'),
    sign: request => signLeaf(certificate, keys, request),
    signBytes: bytes => sign('sha256', bytes, privateKey).toString('base64'),
  };
}

async function selfSign(keys: CryptoKeyPair): Promise<string> {
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: newSerial(),
    name: [{ CN: [`virtkeep CA ${randomBytes(4).toString('hex')}`] }],
    ...validity(CA_DAYS),
    keys,
    signingAlgorithm: KEY_ALGORITHM,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return `${certificate.toString('pem')}\n`;
}

async function signLeaf(
  issuer: x509.X509Certificate,
  keys: CryptoKeyPair,
  request: SignRequest,
): Promise<string> {
  const usage =
    request.use === 'server' ? x509.ExtendedKeyUsage.serverAuth : x509.ExtendedKeyUsage.clientAuth;
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: newSerial(),
    issuer: issuer.subject,
    subject: [{ CN: [request.commonName.slice(0, 64)] }],
    ...validity(request.days),
    publicKey: request.publicKey,
    signingKey: keys.privateKey,
    signingAlgorithm: KEY_ALGORITHM,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([usage], false),
      new x509.SubjectAlternativeNameExtension(subjectNames(request.names)),
      await x509.AuthorityKeyIdentifierExtension.create(issuer.publicKey),
    ],
  });
  return `${certificate.toString('pem')}\n`;
}

function subjectNames(names: CertificateNames): x509.JsonGeneralNames {
  const hosts = [...new Set(names.hosts)].filter(isHost);
  return [
    ...names.urns.map(value => ({ type: 'url' as const, value })),
    ...hosts.map(value => ({ type: isIP(value) ? ('ip' as const) : ('dns' as const), value })),
  ];
}

/** Makes a key and a certificate of this authority for it; `days` is its life. */
export async function issueCertificate(
  ca: CertificateAuthority,
  request: Omit<SignRequest, 'publicKey'>,
): Promise<IssuedCertificate> {
  const keys = await newKeyPair();
  const certificatePem = await ca.sign({ ...request, publicKey: keys.publicKey });
  return {
    certificatePem,
    chainPem: certificatePem + ca.certificatePem,
    privateKeyPem: await exportPrivateKey(keys.privateKey),
  };
}

/** Certificate of an HTTPS server reachable by these DNS names and addresses. */
export function issueServerCertificate(
  ca: CertificateAuthority,
  names: string[],
): Promise<IssuedCertificate> {
  return issueCertificate(ca, {
    commonName: names[0] ?? 'virtkeep',
    names: { urns: [], hosts: names },
    use: 'server',
    days: LEAF_DAYS,
  });
}

/** Positive, 127 bits: the first byte is cleared of its sign bit (RFC 5280, 4.1.2.2). */
function newSerial(): string {
  const bytes = randomBytes(16);
  bytes[0] = (bytes[0]! & 0x7f) | 0x01;
  return bytes.toString('hex');
}
