/** Certificates the controller keeps on disk for itself, made and renewed when they are needed. */
import { join } from 'node:path';
import { readIfPresent, writeDurably } from '@virtkeep/shared/durable-file';
import {
  type CertificateAuthority,
  type IssuedCertificate,
  issueCertificate,
  issueServerCertificate,
  LEAF_DAYS,
} from './authority.ts';
import { CONTROLLER_URN } from './names.ts';
import { firstCertificate, needsRenewal, x509 } from './x509.ts';

/** The client certificate by which the agents know the controller (`pki/controller.pem`, key and chain in one file). */
export function ensureControllerCertificate(
  stateDir: string,
  ca: CertificateAuthority,
): Promise<IssuedCertificate> {
  const make = () =>
    issueCertificate(ca, {
      commonName: 'virtkeep controller',
      names: { urns: [CONTROLLER_URN], hosts: [] },
      use: 'client',
      days: LEAF_DAYS,
    });
  return ensureStored(join(stateDir, 'pki', 'controller.pem'), ca, () => true, make);
}

/**
 * The HTTPS certificate used when none is configured (`pki/server.pem`); made anew when the names change or less than a
 * third of its life remains.
 */
export function ensureServerCertificate(
  stateDir: string,
  ca: CertificateAuthority,
  names: string[],
): Promise<IssuedCertificate> {
  const hasNames = (pem: string) => {
    const text = new x509.X509Certificate(pem).getExtension(x509.SubjectAlternativeNameExtension);
    const present = new Set(text?.names.items.map(item => item.value.toLowerCase()));
    return names.every(name => present.has(name.toLowerCase()));
  };
  return ensureStored(join(stateDir, 'pki', 'server.pem'), ca, hasNames, () =>
    issueServerCertificate(ca, names),
  );
}

/** Key and certificates stand in one file, so that a crash never leaves a key beside another's certificate. */
async function ensureStored(
  path: string,
  ca: CertificateAuthority,
  stillRight: (certificatePem: string) => boolean,
  make: () => Promise<IssuedCertificate>,
): Promise<IssuedCertificate> {
  const stored = await readIfPresent(path);
  const begin = stored?.indexOf('-----BEGIN CERTIFICATE-----') ?? -1;
  if (stored !== undefined && begin > 0) {
    const chainPem = stored.slice(begin);
    const certificatePem = firstCertificate(chainPem);
    const ours = chainPem.includes(ca.certificatePem.trim());
    if (ours && !needsRenewal(certificatePem) && stillRight(certificatePem))
      return { certificatePem, chainPem, privateKeyPem: stored.slice(0, begin) };
  }
  const issued = await make();
  await writeDurably(path, issued.privateKeyPem + issued.chainPem, 0o600);
  return issued;
}
