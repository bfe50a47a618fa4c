/** Certificates the controller keeps for itself, made and renewed when they are needed. */
import { join } from 'node:path';
import { readIfPresent, writeDurably } from '@virtkeep/shared/durable-file';
import { type Keys, keyFiles } from '../keys/keys.ts';
import {
  type CertificateAuthority,
  ensureCa,
  type IssuedCertificate,
  issueCertificate,
  issueServerCertificate,
  LEAF_DAYS,
} from './authority.ts';
import { CONTROLLER_URN } from './names.ts';
import { firstCertificate, needsRenewal, x509 } from './x509.ts';

/** The authority of these keys; its certificate lies in the state directory of each controller, for who wants to trust it. */
export async function openAuthority(stateDir: string, keys: Keys): Promise<CertificateAuthority> {
  const ca = await ensureCa(keys);
  const shown = keyFiles(stateDir);
  const present = await shown.read('pki/ca.crt');
  if (present?.toString('utf8') !== ca.certificatePem) await shown.write('pki/ca.crt', ca.certificatePem);
  return ca;
}

/** The client certificate by which the agents know the controller (`pki/controller.pem`, key and chain in one). */
export function ensureControllerCertificate(
  keys: Keys,
  ca: CertificateAuthority,
): Promise<IssuedCertificate> {
  const make = () =>
    issueCertificate(ca, {
      commonName: 'virtkeep controller',
      names: { urns: [CONTROLLER_URN], hosts: [] },
      use: 'client',
      days: LEAF_DAYS,
    });
  const place: Place = {
    read: async () => (await keys.read('pki/controller.pem'))?.toString('utf8'),
    write: text => keys.write('pki/controller.pem', text),
  };
  return ensureStored(place, ca, () => true, make);
}

/**
 * The HTTPS certificate used when none is configured (`pki/server.pem`); made anew when the names change or less than a
 * third of its life remains. Of several controllers each has its own: their names are not the same.
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
  const path = join(stateDir, 'pki', 'server.pem');
  const place: Place = { read: () => readIfPresent(path), write: text => writeDurably(path, text, 0o600) };
  return ensureStored(place, ca, hasNames, () => issueServerCertificate(ca, names));
}

interface Place {
  read(): Promise<string | undefined>;
  write(text: string): Promise<void>;
}

/** Key and certificates stand in one text, so that a crash never leaves a key beside another's certificate. */
async function ensureStored(
  place: Place,
  ca: CertificateAuthority,
  stillRight: (certificatePem: string) => boolean,
  make: () => Promise<IssuedCertificate>,
): Promise<IssuedCertificate> {
  const stored = await place.read();
  const begin = stored?.indexOf('-----BEGIN CERTIFICATE-----') ?? -1;
  if (stored !== undefined && begin > 0) {
    const chainPem = stored.slice(begin);
    const certificatePem = firstCertificate(chainPem);
    const ours = chainPem.includes(ca.certificatePem.trim());
    if (ours && !needsRenewal(certificatePem) && stillRight(certificatePem))
      return { certificatePem, chainPem, privateKeyPem: stored.slice(0, begin) };
  }
  const issued = await make();
  await place.write(issued.privateKeyPem + issued.chainPem);
  return issued;
}
