/**
 * The tables, as kysely sees them. Times are RFC 3339 UTC texts with `Z` (they sort as they stand), flags are 0 or 1,
 * sizes are numbers below 2^53, and columns ending in `_json` hold JSON texts. Only the migrations may change a table.
 */
import type { Kysely } from 'kysely';

export interface Schema {
  users: UserRow;
  tokens: TokenRow;
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
  domains: DomainRow;
  domain_copies: DomainCopyRow;
  files: FileRow;
  removed_archives: RemovedArchiveRow;
  tags: TagRow;
  tag_entities: TagEntityRow;
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

/** Long-lived integration tokens; only the jti is kept, never the token. */
export interface TokenRow {
  id: string;
  user_id: string;
  name: string;
  created: string;
  expires_on: string;
  last_used: string | null;
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
  modified: string;
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
