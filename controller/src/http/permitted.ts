/**
 * What a viewer may do with a record now, by their role and by what the record itself tells: names of actions, as clients of the API
 * family expect them. Domains and tasks tell it themselves, since more than their record decides there. Pure.
 */
import { type Permission, roleAllows } from '@virtkeep/shared/permissions';
import type { Principal } from '../auth/principal.ts';
import type { SessionRecord } from '../services/accounts/sessions.ts';
import type { TokenRecord } from '../services/accounts/tokens.ts';
import type { UserRecord } from '../services/accounts/users.ts';
import type { FileRecord } from '../services/backup-files/record.ts';
import {
  isAppliance,
  isArchive,
  isBusy,
  isConvertible,
  isDefinition,
  isDirectory,
  isDiskImage,
  isIdle,
  isPublished,
} from '../services/backup-files/usable.ts';
import type { VdiskRecord } from '../services/disks/record.ts';
import type { IsoRecord } from '../services/isos/isos.ts';
import type { NodeRecord } from '../services/nodes/nodes.ts';
import type { NotificationRecord, TargetRecord } from '../services/notifications/record.ts';
import type { PoolRecord } from '../services/pools/record.ts';
import type { ScheduleRecord } from '../services/schedules/schedules.ts';
import type { TagRecord } from '../services/tags/record.ts';

/** Whether an action may be taken; `can` asks for the viewer's role. */
type Rule<R> = (can: (permission: Permission) => boolean, record: R, viewer: Principal) => boolean;
type Rules<R> = Readonly<Record<string, Rule<R>>>;

const node: Rules<NodeRecord> = {
  update: can => can('node.manage'),
  remove: can => can('node.manage'),
};

const pool: Rules<PoolRecord> = {
  update: can => can('pool.manage'),
  scan: (can, { status }) => can('pool.scan') && status === 'ACTIVE',
};

const vdisk: Rules<VdiskRecord> = {
  attach: (can, { status }) => can('vdisk.attach') && status === 'ACTIVE',
};

const file: Rules<FileRecord> = {
  update: can => can('library.manage'),
  refresh: (can, record) => can('library.manage') && isPublished(record),
  verify: (can, record) => can('library.manage') && isIdle(record) && isArchive(record),
  remove: (can, record) =>
    can('library.manage') &&
    !isBusy(record) &&
    !record.protected &&
    (!isDirectory(record) || record.status === 'MISSING'),
  compress: (can, { additional_flags }) => can('library.manage') && additional_flags.can_be_compressed,
  unpack: (can, { additional_flags }) => can('library.manage') && additional_flags.can_be_unpacked,
  convert_backup: (can, record) => can('library.manage') && isIdle(record) && isConvertible(record),
  export: (can, record) =>
    can('library.download') &&
    can('library.manage') &&
    isIdle(record) &&
    isArchive(record) &&
    record.additional_flags.can_be_domained,
  restore: (can, record) =>
    record.additional_flags.can_be_domained &&
    ((can('backup.restore') && isArchive(record)) || (can('backup.restore_foreign') && isAppliance(record))),
  config_restore: (can, record) =>
    can('backup.restore_foreign') && record.additional_flags.can_be_domained && isDefinition(record),
  // also of one whose format must be named first
  import_disk: (can, record) => can('backup.restore_foreign') && isIdle(record) && isDiskImage(record),
  download: (can, record) => can('library.download') && isIdle(record),
};

const iso: Rules<IsoRecord> = {
  download: (can, { status }) => can('library.download') && status === 'ACTIVE',
  upload: (can, { status }) => can('library.upload') && status === 'CREATING',
};

/** Logins and users are changed by who gave a password, never with an integration token. */
const user: Rules<UserRecord> = {
  update: (can, { id }, viewer) => viewer.kind === 'session' && (id === viewer.number || can('user.manage')),
  remove: (can, { id }, viewer) => viewer.kind === 'session' && id !== viewer.number && can('user.manage'),
};

/** Who ends a login gave a password, too. */
const session: Rules<SessionRecord> = {
  remove: (can, { user: owner }, viewer) =>
    viewer.kind === 'session' && (owner.id === viewer.number || can('user.manage')),
};

/** Who sees a token may revoke it. */
const token: Rules<TokenRecord> = { remove: () => true };

const tag: Rules<TagRecord> = {
  update: can => can('tag.manage'),
  remove: can => can('tag.manage'),
  add_entity: can => can('tag.manage'),
  remove_entity: can => can('tag.manage'),
};

const schedule: Rules<ScheduleRecord> = {
  update: can => can('schedule.manage'),
  remove: (can, { last_run }) => can('schedule.manage') && last_run?.status !== 'RUNNING',
  run: (can, { last_run }) => can('schedule.manage') && last_run?.status !== 'RUNNING',
  enable: (can, { enabled }) => can('schedule.manage') && !enabled,
  disable: (can, { enabled }) => can('schedule.manage') && enabled,
  copy: can => can('schedule.manage'),
};

const notification_target: Rules<TargetRecord> = {
  update: can => can('notification.manage'),
  remove: can => can('notification.manage'),
  test: can => can('notification.manage'),
};

const notification: Rules<Omit<NotificationRecord, 'data'>> = {
  retry: (can, { status }) => can('notification.manage') && status !== 'sent',
  remove: can => can('notification.manage'),
};

/** What happened stays as it is. */
const event: Rules<object> = {};

const RULES = {
  node,
  pool,
  vdisk,
  file,
  iso,
  user,
  session,
  token,
  tag,
  schedule,
  notification_target,
  notification,
  event,
};

type RecordOf<K extends keyof typeof RULES> = (typeof RULES)[K] extends Rules<infer R> ? R : never;

/** The record with what the viewer may do with it. */
export function permitted<K extends keyof typeof RULES, T extends RecordOf<K> & object>(
  kind: K,
  record: T,
  viewer: Principal,
): T & { permissions: string[] } {
  const can = (permission: Permission) => roleAllows(viewer.role, permission);
  const rules = Object.entries(RULES[kind] as Rules<RecordOf<K>>);
  const permissions = rules.filter(([, rule]) => rule(can, record, viewer)).map(([action]) => action);
  return { ...record, permissions };
}
