/**
 * A certificate that counts no more. Each entry is signed by the authority that issued the certificate, so it is believed
 * whoever hands it on: a controller whose database was put back learns from the agents what it has forgotten.
 */
import { type KeyObject, verify } from 'node:crypto';

/** `removed`: its owner is gone, and what it signed before still counts. `compromised`: others may have its key. */
export const REVOCATION_REASONS = ['removed', 'compromised'] as const;
export type RevocationReason = (typeof REVOCATION_REASONS)[number];

export interface Revocation {
  /** As `serialOf` makes it. */
  serial: string;
  reason: string;
  /** RFC 3339: the entry may be forgotten then. */
  until: string;
  /** ECDSA with SHA-256 over `revocationBytes`, base64. */
  signature: string;
}

/** Entries that are kept and sent at most; more certificates than that are never revoked within their lives. */
export const MAX_REVOCATIONS = 10_000;

/** What is signed of an entry. It begins as no certificate does. */
export function revocationBytes({ serial, reason, until }: Omit<Revocation, 'signature'>): Buffer {
  return Buffer.from(['virtkeep revocation 1', serial, reason, until].join('\n'));
}

/** True when the authority with this key signed the entry. */
export function isGenuine(revocation: Revocation, authority: KeyObject): boolean {
  if (!(REVOCATION_REASONS as readonly string[]).includes(revocation.reason)) return false;
  const signature = Buffer.from(revocation.signature, 'base64');
  return verify('sha256', revocationBytes(revocation), authority, signature);
}
