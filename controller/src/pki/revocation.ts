import { type Revocation, revocationBytes } from '@virtkeep/shared/revocations';
import type { CertificateAuthority } from './authority.ts';

/** An entry of the list of revoked certificates that every agent of this authority believes. */
export function signRevocation(ca: CertificateAuthority, entry: Omit<Revocation, 'signature'>): Revocation {
  return { ...entry, signature: ca.signBytes(revocationBytes(entry)) };
}
