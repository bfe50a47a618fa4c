/** The audit log: each change and each guest command, who, from where, what, with what result; secrets removed. */

import { isExact, parseExact } from '@virtkeep/shared/exact-json';
import { newId } from '@virtkeep/shared/ids';
import { redact } from '@virtkeep/shared/log';
import { contains } from '../store/dialect.ts';
import type { AuditRow, Database } from '../store/schema.ts';
import { withoutSecretArguments } from './secret-arguments.ts';
import { nextSequence } from './sequence.ts';

export interface AuditEntry {
  userId: string | null;
  username: string;
  address: string;
  method: string;
  path: string;
  action: string;
  entityId: string | null;
  status: number;
  errorKey: string | null;
  taskId: string | null;
  requestId: string;
  body: unknown;
}

export interface AuditRecord {
  id: string;
  created: string;
  user: { id: string | null; username: string };
  address: string;
  method: string;
  path: string;
  action: string;
  entity: string | null;
  status: number;
  error: string | null;
  task: string | null;
  request_id: string;
  request: unknown;
}

export interface AuditFilter {
  user?: string;
  entity?: string;
  /** Part of the action. */
  name?: string;
  descending: boolean;
  limit: number;
  offset: number;
}

const MAX_REQUEST_CHARACTERS = 8192;
/** What a guest is given to read may be a secret, whatever it is called. */
const GUEST_CONTENT = new Set(['input-data', 'buf-b64', 'env', 'content', 'keys', 'unattend']);

export class AuditService {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async record(entry: AuditEntry): Promise<void> {
    const row: AuditRow = {
      id: newId(),
      sequence: nextSequence(),
      created: new Date().toISOString(),
      user_id: entry.userId,
      username: entry.username,
      address: entry.address,
      method: entry.method,
      path: entry.path.slice(0, 1024),
      action: entry.action,
      entity_id: entry.entityId,
      status: entry.status,
      error_key: entry.errorKey,
      task_id: entry.taskId,
      request_id: entry.requestId,
      request_json: requestJson(entry.body),
    };
    await this.#db.insertInto('audit').values(row).execute();
  }

  async list(filter: AuditFilter): Promise<{ count: number; records: AuditRecord[] }> {
    let query = this.#db.selectFrom('audit');
    if (filter.user !== undefined) query = query.where('username', '=', filter.user);
    if (filter.entity !== undefined) query = query.where('entity_id', '=', filter.entity);
    if (filter.name !== undefined) query = query.where(contains('action', filter.name));
    const total = await query
      .select(({ fn }) => fn.countAll<number>().as('number'))
      .executeTakeFirstOrThrow();
    const rows = await query
      .selectAll()
      .orderBy('sequence', filter.descending ? 'desc' : 'asc')
      .limit(filter.limit)
      .offset(filter.offset)
      .execute();
    return { count: Number(total.number), records: rows.map(auditRecord) };
  }

  async prune(before: Date): Promise<number> {
    const result = await this.#db
      .deleteFrom('audit')
      .where('created', '<', before.toISOString())
      .executeTakeFirst();
    return Number(result.numDeletedRows);
  }
}

/** The body with secrets removed, cut when it is long (then it is a text). */
export function requestJson(body: unknown): string {
  const text = JSON.stringify(withoutGuestContent(redact(body))) ?? 'null';
  if (text.length <= MAX_REQUEST_CHARACTERS) return text;
  return JSON.stringify(`${text.slice(0, MAX_REQUEST_CHARACTERS)}…`);
}

function withoutGuestContent(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || isExact(value)) return value;
  if (Array.isArray(value)) return value.map(withoutGuestContent);
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [
      name,
      GUEST_CONTENT.has(name)
        ? '[redacted]'
        : withoutGuestContent(name === 'arg' ? withoutSecretArguments(item) : item),
    ]),
  );
}

function auditRecord(row: AuditRow): AuditRecord {
  return {
    id: row.id,
    created: row.created,
    user: { id: row.user_id, username: row.username },
    address: row.address,
    method: row.method,
    path: row.path,
    action: row.action,
    entity: row.entity_id,
    status: row.status,
    error: row.error_key,
    task: row.task_id,
    request_id: row.request_id,
    request: parseExact(row.request_json),
  };
}
