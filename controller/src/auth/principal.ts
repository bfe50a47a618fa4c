import { VirtkeepError } from '@virtkeep/shared/errors';
import { type Permission, type Role, roleAllows } from '@virtkeep/shared/permissions';

/** Who a request is made by, proved by its token. */
export interface Principal {
  id: string;
  /** Their id for clients. */
  number: number;
  username: string;
  role: Role;
  /** The token's id: of a login (`session`) or of a long-lived one (`integration`). */
  jti: string;
  kind: 'session' | 'integration';
  /** What all tokens refreshed from one login have in common. */
  family: string;
  expiresOn: Date;
  /** When the last token of the family ends. */
  familyEndsOn: Date;
}

/** Who began something, by whatever way. */
export interface Actor {
  id: string;
  username: string;
  /** The task that what they begin is a part of. */
  parent?: string;
}

/**
 * What only somebody may do who gave the password, and no program with a token: whatever makes a login or a token, or could, so
 * that a stolen token is good for what it is and no longer than it lives. @throws session_required.
 */
export function requireSession(principal: Principal): void {
  if (principal.kind !== 'session') throw new VirtkeepError('session_required');
}

/** @throws permission_denied naming the role and the permission. */
export function requirePermission(principal: Principal, permission: Permission): void {
  if (!roleAllows(principal.role, permission)) {
    throw new VirtkeepError('permission_denied', { role: principal.role, permission });
  }
}
