import 'reflect-metadata';
import { verify, X509Certificate } from 'node:crypto';
import { BasicConstraintsExtension, X509Certificate as ParsedCertificate } from '@peculiar/x509';
import { reasonOf } from '@virtkeep/shared/errors';
import type { AppliancePackage, Text } from './appliance.ts';
import { Fault, ofAppliance, shown } from './fault.ts';
import { type DigestName, splitDigestLine } from './manifest.ts';

/** Longest chain of certificates, and most that are read of either file. */
const MAX_CERTIFICATES = 10;
const MAX_AUTHORITIES = 500;

export interface Authorities {
  /** Certificates of those whose word is taken, as PEM. */
  pem: string;
  /** The moment for which certificates must be valid. */
  now?: Date;
}

export interface CheckedSignature {
  /** Subject of the certificate whose key has signed the manifest; null when there is none, or nobody checked. */
  signer: string | null;
  warnings: string[];
}

/** What of an appliance tells who vouches for its descriptor. */
export type SignedTexts = Pick<AppliancePackage, 'path' | 'manifest' | 'certificate' | 'descriptor'>;

/**
 * Checks who vouches for the manifest: its signature by the certificate's key, the chain to one of the authorities, and that each
 * certificate of it is valid now. Revocation is not asked for.
 * @param authorities undefined where none are given: nothing is checked then
 * @throws VirtkeepError appliance_invalid
 */
export function checkCertificate(
  { path, manifest, certificate }: Omit<SignedTexts, 'descriptor'>,
  authorities: Authorities | undefined,
): Promise<CheckedSignature> {
  return ofAppliance(path, async () => {
    if (certificate === null)
      return unsigned(authorities ? ['The appliance is not signed: nobody vouches for it.'] : []);
    if (authorities === undefined)
      return unsigned([`Nobody checked the signature ${shown(certificate.name)}: no authorities are given.`]);
    if (manifest === null) throw new Fault('it is signed and has no manifest, which the signature is of');
    const { digest, signer } = readable(() => judge(manifest, certificate, authorities));
    const warnings = digest === 'sha1' ? ['The appliance is signed with SHA-1, which can be forged.'] : [];
    return { signer: subjectOf(signer), warnings };
  });
}

const unsigned = (warnings: string[]): CheckedSignature => ({ signer: null, warnings });

/** Whatever OpenSSL finds wrong with foreign bytes. @throws Fault */
function readable<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof Fault) throw error;
    throw new Fault(`its certificates cannot be read: ${reasonOf(error)}`);
  }
}

/** @returns the digest that was signed, and by whom. @throws Fault; OpenSSL's own errors */
function judge(
  manifest: Text,
  certificate: Text,
  { pem, now = new Date() }: Authorities,
): { digest: DigestName; signer: X509Certificate } {
  const text = certificate.bytes.toString('latin1');
  const { digest, signature, chain } = parseCertificate(text, manifest.name);
  const signer = chain.find(({ publicKey }) => verified(digest, manifest.bytes, publicKey, signature));
  if (signer === undefined) throw new Fault('its signature is not that of its manifest');
  checkChain(signer, chain, certificatesIn(pem, MAX_AUTHORITIES), now);
  return { digest, signer };
}

function parseCertificate(text: string, manifestName: string) {
  const line = splitDigestLine(text.split(/\r\n|\r|\n/).find(one => one.trim() !== '') ?? '');
  if (line === undefined) throw new Fault('its certificate file begins with no signature');
  if (line.file !== manifestName)
    throw new Fault(`its signature is of ${shown(line.file)}, not of its manifest ${shown(manifestName)}`);
  const chain = certificatesIn(text, MAX_CERTIFICATES);
  if (chain.length === 0) throw new Fault('its certificate file holds no certificate');
  return { digest: line.digest, signature: Buffer.from(line.value, 'hex'), chain };
}

function certificatesIn(text: string, most: number): X509Certificate[] {
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  if (blocks.length > most)
    throw new Fault(`there are ${blocks.length} certificates, at most ${most} are read`);
  return blocks.map(block => new X509Certificate(block));
}

function verified(
  digest: string,
  bytes: Buffer,
  key: X509Certificate['publicKey'],
  signature: Buffer,
): boolean {
  try {
    return verify(digest, bytes, key, signature);
  } catch {
    // a key that signs otherwise
    return false;
  }
}

/** Goes from the signer up to an authority. @throws Fault */
function checkChain(
  signer: X509Certificate,
  given: readonly X509Certificate[],
  authorities: readonly X509Certificate[],
  now: Date,
): void {
  let current = signer;
  for (let depth = 0; depth < MAX_CERTIFICATES; depth++) {
    checkValidity(current, now);
    if (authorities.some(({ raw }) => raw.equals(current.raw))) return;
    const below = current;
    const above = (one: X509Certificate) => hasIssued(one, below, depth);
    const authority = authorities.find(above);
    if (authority !== undefined) {
      checkValidity(authority, now);
      return;
    }
    const next = given.find(one => !one.raw.equals(below.raw) && above(one));
    if (next === undefined) break;
    current = next;
  }
  throw new Fault(`none of the given authorities vouches for the certificate ${nameOf(signer)}`);
}

/** @param below certificates of authorities between this one and the signer */
function hasIssued(issuer: X509Certificate, subject: X509Certificate, below: number): boolean {
  if (!issuer.ca || !subject.checkIssued(issuer) || !subject.verify(issuer.publicKey)) return false;
  const { pathLength } = new ParsedCertificate(issuer.raw).getExtension(BasicConstraintsExtension) ?? {};
  return pathLength === undefined || below <= pathLength;
}

function checkValidity(certificate: X509Certificate, now: Date): void {
  const { validFromDate, validToDate } = certificate;
  if (now < validFromDate) throw new Fault(`the certificate ${nameOf(certificate)} is not valid yet`);
  if (now > validToDate) throw new Fault(`the certificate ${nameOf(certificate)} has expired`);
}

const subjectOf = ({ subject }: X509Certificate): string => subject.replaceAll('\n', ', ').slice(0, 200);

const nameOf = (certificate: X509Certificate): string => shown(subjectOf(certificate));
