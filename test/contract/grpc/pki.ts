import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { keyFiles } from '../../../controller/src/keys/keys.ts';
import {
  type CertificateAuthority,
  type CertificateUse,
  ensureCa,
  type IssuedCertificate,
  issueCertificate,
} from '../../../controller/src/pki/authority.ts';

/** A fresh authority, made by the controller's own code: what the agent must get on with. */
export async function newAuthority(): Promise<CertificateAuthority> {
  const directory = mkdtempSync(join(tmpdir(), 'virtkeep-pki-'));
  try {
    return await ensureCa(keyFiles(directory));
  } finally {
    rmSync(directory, { recursive: true });
  }
}

export function issue(
  ca: CertificateAuthority,
  use: CertificateUse,
  urns: string[],
  days = 1,
): Promise<IssuedCertificate> {
  return issueCertificate(ca, {
    commonName: 'test',
    names: { urns, hosts: ['localhost', '127.0.0.1'] },
    use,
    days,
  });
}
