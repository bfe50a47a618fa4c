/** Everything the routes may use; made once in main (or a test) and handed down. */
import type { Logger } from '@virtkeep/shared/log';
import type { Acting } from '../agents/acting.ts';
import type { ControllerConfig } from '../config.ts';
import type { Database } from '../store/schema.ts';
import type { PasswordChecks } from './accounts/password-checks.ts';
import type { SessionService } from './accounts/sessions.ts';
import type { TokenService } from './accounts/tokens.ts';
import type { UserService } from './accounts/users.ts';
import type { BackupService } from './backups/backups.ts';
import type { DiskImportService } from './backups/disk-import.ts';
import type { DownloadService } from './backups/downloads.ts';
import type { FileActionService } from './backups/file-actions.ts';
import type { LibraryService } from './backups/library.ts';
import type { LendingService } from './disks/attachments.ts';
import type { LoanReconciler } from './disks/reconciler.ts';
import type { VdiskService } from './disks/vdisks.ts';
import type { DomainService } from './domains/domains.ts';
import type { SnapshotService } from './domains/snapshots.ts';
import type { TemplateService } from './domains/templates.ts';
import type { GuestService } from './guests/guests.ts';
import type { GuestOperationService } from './guests/operations.ts';
import type { IsoService } from './isos/isos.ts';
import type { AuditService } from './journal/audit.ts';
import type { ChangeFeed } from './journal/changes.ts';
import type { EventService } from './journal/events.ts';
import type { MetricSources } from './monitoring/sources.ts';
import type { NodeService } from './nodes/nodes.ts';
import type { RevocationService } from './nodes/revocations.ts';
import type { NotificationService } from './notifications/notifications.ts';
import type { PoolForecasts } from './pools/forecasts.ts';
import type { PoolService } from './pools/pools.ts';
import type { ProtectionService } from './protection/protection.ts';
import type { Scheduler } from './schedules/scheduler.ts';
import type { ScheduleService } from './schedules/schedules.ts';
import type { SettingService } from './settings/settings.ts';
import type { TagService } from './tags/tags.ts';
import type { IdempotencyService } from './tasks/idempotency.ts';
import type { MultiTasks } from './tasks/multi-tasks.ts';
import type { TaskService } from './tasks/tasks.ts';
import type { UploadService } from './uploads/uploads.ts';

export interface CoreServices {
  config: ControllerConfig;
  log: Logger;
  db: Database;
  changes: ChangeFeed;
  events: EventService;
  tasks: TaskService;
  users: UserService;
  passwords: PasswordChecks;
  sessions: SessionService;
  tokens: TokenService;
  audit: AuditService;
  settings: SettingService;
  notifications: NotificationService;
  idempotency: IdempotencyService;
  metricSources: MetricSources;
  /** Fires when the controller begins to stop: waiting answers turn into 202, new changes are refused. */
  draining: AbortSignal;
  acting: Acting;
}

export interface NodeServices {
  nodes: NodeService;
  revocations: RevocationService;
  pools: PoolService;
  poolForecasts: PoolForecasts;
  domains: DomainService;
  library: LibraryService;
  fileActions: FileActionService;
  downloads: DownloadService;
  isos: IsoService;
  fileUploads: UploadService;
  snapshots: SnapshotService;
  backups: BackupService;
  diskImports: DiskImportService;
  vdisks: VdiskService;
  lending: LendingService;
  loanReconciler: LoanReconciler;
  templates: TemplateService;
  guests: GuestService;
  guestOperations: GuestOperationService;
  tags: TagService;
  protection: ProtectionService;
  multiTasks: MultiTasks;
  schedules: ScheduleService;
  scheduler: Scheduler;
  /** Reads what was known before; once. */
  load(): Promise<void>;
  /** Begins to connect to the nodes, when what was known has been read. */
  startNodes(): Promise<void>;
  /** Waits until all nodes are connected, at most so long. */
  nodesSettled(mostMs: number): Promise<void>;
  /** As `NodeLinks.reach`. */
  nodesReach(): { all: number; away: string[] };
  /** Ends the connections; the nodes keep working. */
  stopNodes(): Promise<void>;
}

export interface Services extends CoreServices, NodeServices {}
