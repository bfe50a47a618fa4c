/**
 * The tables, as kysely sees them. Times are RFC 3339 UTC texts with `Z` (they sort as they stand), flags are 0 or 1,
 * sizes are numbers below 2^53, and columns ending in `_json` hold JSON texts. Only the migrations may change a table.
 */
import type { Kysely } from 'kysely';

export interface Schema {
  users: UserRow;
  removed_users: RemovedUserRow;
  tokens: TokenRow;
  sessions: SessionRow;
  revoked_sessions: RevokedSessionRow;
  login_failures: LoginFailureRow;
  known_logins: KnownLoginRow;
  tasks: TaskRow;
  task_entities: TaskEntityRow;
  events: EventRow;
  event_entities: EventEntityRow;
  audit: AuditRow;
  idempotency: IdempotencyRow;
  nodes: NodeRow;
  node_enrolments: NodeEnrolmentRow;
  certificates: CertificateRow;
  pools: PoolRow;
  pool_nodes: PoolNodeRow;
  pool_samples: PoolSampleRow;
  domains: DomainRow;
  domain_copies: DomainCopyRow;
  files: FileRow;
  removed_archives: RemovedArchiveRow;
  protection_exclusions: ProtectionExclusionRow;
  backup_attempts: BackupAttemptRow;
  tags: TagRow;
  tag_entities: TagEntityRow;
  scheduled_tasks: ScheduledTaskRow;
  scheduled_runs: ScheduledRunRow;
  scheduled_parts: ScheduledPartRow;
  file_origins: FileOriginRow;
  retention_decisions: RetentionDecisionRow;
  notification_targets: NotificationTargetRow;
  notifications: NotificationRow;
  row_counts: RowCountRow;
  settings: SettingRow;
  sealed_keys: SealedKeyRow;
}

export type Database = Kysely<Schema>;

export interface UserRow {
  /** By which everything here names them. */
  id: string;
  /** By which clients name them; from 1, in the order in which they were made. */
  number: number;
  username: string;
  role: string;
  password_hash: string;
  enabled: number;
  /** Logins before this time are refused (password changed, user disabled); a whole second, at most one ahead. */
  sessions_since: string;
  description: string;
  created: string;
  modified: string;
  last_login: string | null;
}

/** What their tasks, events and audit records still name; their numbers are given to nobody else. */
export interface RemovedUserRow {
  id: string;
  number: number;
  username: string;
  removed: string;
}

/** Long-lived integration tokens; only the jti is kept, never the token. */
export interface TokenRow {
  id: string;
  user_id: string;
  name: string;
  created: string;
  expires_on: string;
  last_used: string | null;
}

/** Logins, by what all tokens refreshed from one have in common; rows past `expires_on` are deleted. */
export interface SessionRow {
  id: string;
  user_id: string;
  /** When the password was given, to the second, as its tokens tell it. */
  created: string;
  /** Of the token that was issued last. */
  expires_on: string;
  last_used: string;
  /** From where; empty: of a login that was made before this was written down. */
  address: string;
  /** The browser or program, as `clientName` shortens it; empty as the address. */
  client: string;
}

/** Login tokens that were revoked before their end; rows past `expires_on` are deleted. */
export interface RevokedSessionRow {
  jti: string;
  expires_on: string;
}

/** Failed logins per user and address; the key is a hash so that a password typed as a user name is not kept. */
export interface LoginFailureRow {
  subject: string;
  failures: number;
  last_failure: string;
}

/** Where a user logged in lately; the key is that of the pair in `login_failures`. */
export interface KnownLoginRow {
  subject: string;
  last_success: string;
}

export interface TaskRow {
  id: string;
  name: string;
  verbose_name: string;
  status: string;
  progress: number;
  created: string;
  finished_time: string | null;
  error_json: string | null;
  is_cancellable: number;
  is_multitask: number;
  parent: string | null;
  node_id: string | null;
  user_id: string;
  username: string;
  detail_json: string;
  /** Result record as JSON, once it has succeeded. */
  result_json: string | null;
  cancel_requested: number;
  locks_released: number;
  /** Of a `domain_backup`: 1 once `backup_attempts` has its end. Of every other task it stays 0. */
  noted: number;
  /** 1: a backup that leaves out disks on request; what becomes of it says nothing of how its VM is protected. */
  leaves_out: number;
}

export interface TaskEntityRow {
  task_id: string;
  position: number;
  entity_id: string;
  entity_class: string;
}

export interface EventRow {
  id: string;
  /** Grows with every event; orders those of the same millisecond. */
  sequence: number;
  type: string;
  message: string;
  detail_message: string;
  user: string;
  created: string;
  task_id: string | null;
}

export interface EventEntityRow {
  event_id: string;
  position: number;
  entity_id: string;
  entity_class: string;
}

export interface AuditRow {
  id: string;
  sequence: number;
  created: string;
  user_id: string | null;
  username: string;
  address: string;
  method: string;
  path: string;
  /** Route pattern, e.g. `POST /api/domains/:id/start/`. */
  action: string;
  entity_id: string | null;
  status: number;
  error_key: string | null;
  task_id: string | null;
  request_id: string;
  /** The request's body with secrets removed. */
  request_json: string;
  /** How often the same refusal was repeated; its last time, null for once. */
  count: number;
  last_time: string | null;
}

export interface IdempotencyRow {
  user_id: string;
  idempotency_key: string;
  request_hash: string;
  /** The task id reserved for a long action; the operation id on the node is the same. */
  task_id: string | null;
  status: number | null;
  answer_json: string | null;
  created: string;
}

export interface NodeRow {
  id: string;
  verbose_name: string;
  description: string;
  /** `host:port` of the agent. */
  address: string;
  certificate_fingerprint: string;
  service_mode: number;
  base_datapool: string | null;
  /** Last inventory of the node as JSON; kept while it is away. */
  inventory_json: string;
  /** Last sequence of the operation stream that has been handled. */
  operation_sequence: number;
  last_seen: string | null;
  created: string;
  modified: string;
}

export interface NodeEnrolmentRow {
  id: string;
  /** SHA-256 of the one-time token. */
  token_hash: string;
  /** Empty: the host name that the node tells. */
  verbose_name: string;
  description: string;
  /** `host:port` by which to reach the agent; empty: what the node tells. */
  address: string;
  created: string;
  expires_on: string;
  used_by_node: string | null;
  created_by: string;
  /** The one node that it is for, which is enrolled already; null: for a node that is not. */
  replaces: string | null;
}

/** A certificate that this controller's authority issued to a node or a service. */
export interface CertificateRow {
  /** Lower-case hex without leading zeros; `before:<node id>` for that of a node of which only the fingerprint is known. */
  serial: string;
  /** Empty for one that was revoked by its serial and of which nothing else is known. */
  kind: 'node' | 'service' | '';
  /** Id of the node, name of the service. */
  subject: string;
  /** Of the service. */
  role: string;
  /** SHA-256 of the DER, lower-case hex. */
  fingerprint: string;
  issued: string;
  expires_on: string;
  /** The node has shown a newer one. */
  superseded: number;
  revoked_on: string | null;
  reason: string | null;
}

/** A pool and what the controller alone knows of it. */
export interface PoolRow {
  id: string;
  verbose_name: string;
  description: string;
  type: string;
  outside: number;
  readonly: number;
  /** Bytes per second of all backups that go to it, together; 0: no limit. */
  backup_bandwidth: number;
  /** The longest that VMs may wait for its disks on the average, ms, before backups are slowed down; 0: no limit. */
  latency_target: number;
  created: string;
  modified: string;
}

/** A pool as one node sees it. */
export interface PoolNodeRow {
  pool_id: string;
  node_id: string;
  record_json: string;
  last_seen: string;
}

export interface DomainRow {
  id: string;
  node_id: string;
  verbose_name: string;
  power_state: number;
  template: number;
  thin: number;
  record_json: string;
  first_seen: string;
  modified: string;
  /** The node on which it was last seen to run. */
  ran_on: string | null;
}

/** What a node tells of a VM that another node has. */
export interface DomainCopyRow {
  domain_id: string;
  node_id: string;
  record_json: string;
}

/** The known backup files; rebuilt by scanning the pools. */
export interface FileRow {
  id: string;
  pool_id: string;
  path: string;
  filename: string;
  verbose_name: string;
  description: string;
  size: number;
  status: string;
  type: string;
  compressed: number;
  can_be_incremental: number;
  protected: number;
  domain_id: string | null;
  domain_name: string | null;
  created: string;
  /** Everything else of the record, as JSON. */
  record_json: string;
  /** Time of its newest restore point; null: it has none that could be restored (`restore-points.ts`). */
  newest_point: string | null;
  /** The same of those that leave out no disks on request; null: it has no such one. */
  newest_whole_point: string | null;
  modified: string;
}

/** How much of a data pool was used on a day; the last 90. */
export interface PoolSampleRow {
  pool_id: string;
  /** A date, UTC. */
  day: string;
  /** Bytes. */
  used: number;
}

/** A VM that an administrator does without backups of; it may be gone for a while. */
export interface ProtectionExclusionRow {
  domain_id: string;
  created: string;
}

/** What is known of the backups of a VM that have ended, however long ago their tasks were forgotten. */
export interface BackupAttemptRow {
  domain_id: string;
  /** Of the last one that was not cancelled. */
  finished: string;
  failed: number;
  /** Key and text of its error; null when it has not failed. */
  error_key: string | null;
  error_text: string | null;
  /** The rest is of the last one that succeeded; all null: none has. */
  succeeded: string | null;
  duration_ms: number | null;
  /** Null: not known. */
  bytes_read: number | null;
  /** By so much its archive grew; null: not known. */
  bytes_written: number | null;
}

/** An archive that was removed while its VM may still have states of it. */
export interface RemovedArchiveRow {
  archive_id: string;
  domain_id: string;
  removed: string;
}

export interface TagRow {
  id: string;
  verbose_name: string;
  description: string;
  colour: string;
  created: string;
  modified: string;
}

/** What bears a tag. It may be gone for a while, or for ever. */
export interface TagEntityRow {
  tag_id: string;
  entity_id: string;
  entity_class: string;
}

export interface ScheduledTaskRow {
  id: string;
  verbose_name: string;
  /** `ScheduleDefinition`. */
  definition_json: string;
  enabled: number;
  /** When it is due next; null: never again. */
  next_run: string | null;
  /** Id of its newest run, or of the newest record that it did not run. */
  last_run: string | null;
  /** When its last run with a good end ended. */
  last_success: string | null;
  /** Of the last run that has ended. */
  last_duration_ms: number | null;
  /** Who made it: its runs are theirs. */
  user_id: string;
  username: string;
  created: string;
  modified: string;
}

/** One run of a scheduled task, or the record that it did not run. Each due time of a task has one at most. */
export interface ScheduledRunRow {
  /** Of one that runs also the id of its task of many parts. */
  id: string;
  scheduled_task_id: string;
  /** Null: somebody asked for it. */
  due_time: string | null;
  /** RUNNING, SUCCESS, PARTIAL, FAILED, CANCELED, SKIPPED, MISSED. */
  status: string;
  /** The settings as they were when it began. */
  definition_json: string;
  window_end: string | null;
  /** Due times that passed while nobody was there to begin them, before this one or of this record. */
  missed_count: number;
  /** Why it did not run, or why it failed where it has no parts. */
  reason: string;
  /** Ids that the task names and nobody has. */
  missing_json: string;
  user_id: string;
  username: string;
  created: string;
  finished: string | null;
}

/** What a run does with one VM, backup file or data pool. */
export interface ScheduledPartRow {
  run_id: string;
  position: number;
  entity_id: string;
  entity_class: string;
  entity_name: string;
  /** WAITING, RUNNING, SUCCESS, PARTIAL, FAILED, CANCELED, SKIPPED. */
  status: string;
  /** `PartStep`: what it does now. */
  step: string;
  /** What the tasks of the step are about, where one step has several: saved states, files. */
  subject: string | null;
  /** Of the step's task; written before the task is started. */
  task_id: string | null;
  /** From 1. */
  attempt: number;
  not_before: string | null;
  node_id: string | null;
  pool_id: string | null;
  /** full, increment, full_by_limit, full_by_rule; empty until it is decided. */
  mode: string;
  /** The file that is to be extended, when the task names one that can be. */
  extend_id: string | null;
  /** Bytes that it is expected to take, or that its node wants, when that is more; 0 until it first begins. */
  estimate: number;
  /** Bytes that it took. */
  bytes: number | null;
  /** The backup that it made. */
  file_id: string | null;
  /** Also that of a step that the backup is good without. */
  error_json: string | null;
  /** What else there is to tell, as a list of sentences. */
  notes_json: string;
  started: string | null;
  finished: string | null;
}

/** Which scheduled task made an archive. */
export interface FileOriginRow {
  archive_id: string;
  scheduled_task_id: string;
  domain_id: string;
  created: string;
}

/** A file that a run decided to delete; written before anything is deleted. */
export interface RetentionDecisionRow {
  /** Also the id of the task that deletes it. */
  id: string;
  run_id: string;
  position: number;
  /** Grows with each of the same part. */
  sequence: number;
  file_id: string;
  archive_id: string;
  filename: string;
  domain_id: string;
  size: number;
  reason: string;
  /** DECIDED, REMOVED, DROPPED (it must stay by now), FAILED. */
  status: string;
  error_json: string | null;
  decided: string;
  finished: string | null;
}

/** Who is told of what. */
export interface NotificationTargetRow {
  id: string;
  verbose_name: string;
  kind: 'mail' | 'webhook';
  enabled: number;
  events_json: string;
  templates_json: string;
  /** How it is reached, as far as it may be shown. */
  settings_json: string;
  /** The rest, sealed with a key that is not in the database. */
  secrets_sealed: string;
  created: string;
  modified: string;
}

/** One message for one target: the outbox. */
export interface NotificationRow {
  /** Also the id of the delivery. */
  id: string;
  sequence: number;
  target_id: string;
  event: string;
  /** A target is told once under a key. */
  key: string;
  data_json: string;
  status: 'pending' | 'sent' | 'dead';
  /** That failed, since it was raised or last asked for by hand. */
  attempts: number;
  /** Null unless pending. */
  next_attempt: string | null;
  last_attempt: string | null;
  /** Why the last attempt failed; of what was sent, what is to be known of it. */
  reason: string;
  /** Of a mail that is put off for others: addresses of the recipients that have it, a list as JSON. They do not get it again. */
  reached_json: string;
  created: string;
}

/** A setting that is another one than in the file of the controller. */
export interface SettingRow {
  name: string;
  /** JSON. */
  value: string;
  modified: string;
}

/** A key that several controllers share, sealed with one that is in a file of each. */
export interface SealedKeyRow {
  name: string;
  sealed: string;
}

/** How many rows of a table have these values in the two columns by which they are counted; the database keeps it itself. */
export interface RowCountRow {
  of_table: string;
  /** Empty for null. */
  first: string;
  second: string;
  number: number;
}
