import { VirtkeepError } from '@virtkeep/shared/errors';
import { type Permission, type Role, roleAllows } from './permissions.ts';

/** Who a request is made by, proved by its token. */
export interface Principal {
  id: string;
  username: string;
  role: Role;
  /** The token's id: of a login (`session`) or of a long-lived one (`integration`). */
  jti: string;
  kind: 'session' | 'integration';
  expiresOn: Date;
}

/** @throws permission_denied naming the role and the permission. */
export function requirePermission(principal: Principal, permission: Permission): void {
  if (!roleAllows(principal.role, permission)) {
    throw new VirtkeepError('permission_denied', { role: principal.role, permission });
  }
}
