/** Every named record of the API document. */
import type { TSchema } from 'typebox';
import type { App } from '../app.ts';
import {
  IssuedTokenSchema,
  NewTokenSchema,
  SessionSchema,
  TokenSchema,
  UserSchema,
  UserSessionSchema,
} from './account.ts';
import { CertificateSchema, RevokedCertificateSchema } from './certificate.ts';
import { ErrorBody } from './common.ts';
import { DomainSchema } from './domain.ts';
import { AuditSchema, EventSchema } from './event.ts';
import {
  ConvertedFileSchema,
  ExportedFileSchema,
  FileSchema,
  ShownBackupSchema,
  TrimmedFileSchema,
  VerifiedFileSchema,
} from './file.ts';
import {
  AvailableCommandsSchema,
  ChangedSshKeysSchema,
  DirectoryJoinedSchema,
  DirectoryLeftSchema,
  GuestInfoSchema,
  GuestPreparedSchema,
  GuestToolsSchema,
  HostnameSetSchema,
  PreparationsSchema,
  SshKeysSchema,
  SysprepRunSchema,
} from './guest.ts';
import { IsoSchema } from './iso.ts';
import { EnrolmentSchema, NodeCertificateSchema, NodeSchema, NodeUsageSchema } from './node.ts';
import {
  EVENT_SCHEMAS,
  NotificationSchema,
  NotificationTargetSchema,
  NotificationTestSchema,
} from './notification.ts';
import { OverviewSchema } from './overview.ts';
import { PoolSchema } from './pool.ts';
import { ProtectionSchema } from './protection.ts';
import {
  OccurrenceSchema,
  PreviewSchema,
  QueuedPartSchema,
  RetentionVerdictSchema,
  RunResultSchema,
  RunSchema,
  ScheduleSchema,
} from './schedule.ts';
import { SettingSchema } from './setting.ts';
import { SnapshotSchema } from './snapshot.ts';
import { TagSchema } from './tag.ts';
import { MultiResultSchema, TaskAccepted, TaskRecordSchema, TaskResponse } from './task.ts';
import { UploadSchema } from './upload.ts';
import { AttachedVdiskSchema, ChangedTemplateSchema, DetachedVdiskSchema, VdiskSchema } from './vdisk.ts';
import { ClusterSchema, ResourcePoolSchema } from './whole.ts';

const SCHEMAS: readonly TSchema[] = [
  ErrorBody,
  IssuedTokenSchema,
  SessionSchema,
  UserSessionSchema,
  UserSchema,
  TokenSchema,
  NewTokenSchema,
  TaskRecordSchema,
  TaskAccepted,
  TaskResponse,
  MultiResultSchema,
  EventSchema,
  AuditSchema,
  NodeSchema,
  NodeUsageSchema,
  ClusterSchema,
  ResourcePoolSchema,
  EnrolmentSchema,
  CertificateSchema,
  RevokedCertificateSchema,
  NodeCertificateSchema,
  PoolSchema,
  GuestInfoSchema,
  DomainSchema,
  ProtectionSchema,
  SettingSchema,
  OverviewSchema,
  FileSchema,
  VerifiedFileSchema,
  TrimmedFileSchema,
  ConvertedFileSchema,
  ExportedFileSchema,
  ShownBackupSchema,
  SnapshotSchema,
  VdiskSchema,
  AttachedVdiskSchema,
  DetachedVdiskSchema,
  ChangedTemplateSchema,
  AvailableCommandsSchema,
  SshKeysSchema,
  ChangedSshKeysSchema,
  HostnameSetSchema,
  DirectoryJoinedSchema,
  DirectoryLeftSchema,
  SysprepRunSchema,
  GuestPreparedSchema,
  PreparationsSchema,
  GuestToolsSchema,
  TagSchema,
  IsoSchema,
  UploadSchema,
  ScheduleSchema,
  RunSchema,
  RunResultSchema,
  PreviewSchema,
  RetentionVerdictSchema,
  QueuedPartSchema,
  OccurrenceSchema,
  NotificationTargetSchema,
  NotificationTestSchema,
  NotificationSchema,
  ...EVENT_SCHEMAS,
];

export function registerSchemas(app: App): void {
  for (const schema of SCHEMAS) app.addSchema(schema);
}
