/**
 * Roles and what they may do: the one table, for users over REST and for services over gRPC. Each route and each method
 * declares one permission; guest commands have classes of their own (`guest.read` … `guest.execute`), so that a role
 * names the classes it may use.
 */

/** Of users. */
export const ROLES = ['administrator', 'operator', 'auditor', 'backup_service'] as const;
export type Role = (typeof ROLES)[number];

/** Of other services that call the agents. A name that users have as well means the same. */
export const SERVICE_ROLES = ['reader', 'operator'] as const;
export type ServiceRole = (typeof SERVICE_ROLES)[number];

const READ = [
  'account.own',
  'system.read',
  'task.read',
  'event.read',
  'node.read',
  'pool.read',
  'domain.read',
  'vdisk.read',
  'library.read',
  'schedule.read',
  'tag.read',
] as const;

const OPERATE = [
  'task.cancel',
  'task.cancel_any',
  'domain.power',
  'snapshot.manage',
  'backup.create',
  'backup.restore',
  'library.manage',
  'library.download',
  'pool.scan',
  'schedule.manage',
  'tag.manage',
  'vdisk.attach',
  'guest.read',
  'guest.file',
  'guest.power',
  'guest.execute',
] as const;

const ADMINISTER = [
  'user.read',
  'user.manage',
  'token.manage',
  'audit.read',
  'metrics.read',
  'task.release_locks',
  'node.manage',
  'certificate.manage',
  'pool.manage',
  'domain.manage',
  'backup.restore_foreign',
  'backup.sign',
  'library.upload',
  'notification.manage',
  'settings.manage',
] as const;

export type Permission = (typeof READ)[number] | (typeof OPERATE)[number] | (typeof ADMINISTER)[number];

/** What a route may declare: a permission, `login` (any user) or `public` (no login). */
export type RouteAccess = Permission | 'login' | 'public';

const TABLE: Record<Role | ServiceRole, ReadonlySet<Permission>> = {
  administrator: new Set([...READ, ...OPERATE, ...ADMINISTER]),
  operator: new Set([...READ, ...OPERATE]),
  auditor: new Set([...READ, 'audit.read', 'user.read']),
  backup_service: new Set([...READ, 'vdisk.attach', 'backup.create', 'task.cancel']),
  reader: new Set(READ),
};

/** True when the role may do what needs this permission. */
export function roleAllows(role: Role | ServiceRole, permission: Permission): boolean {
  return TABLE[role].has(permission);
}

/** Everything that a role may do, in the order of the alphabet. */
export function permissionsOf(role: Role | ServiceRole): Permission[] {
  return [...TABLE[role]].sort();
}
