/** The audit log: each change and each guest command, who, from where, what, with what result; secrets removed. */

import { isExact, parseExact } from '@virtkeep/shared/exact-json';
import { newId } from '@virtkeep/shared/ids';
import { redact } from '@virtkeep/shared/log';
import { type Expression, type ExpressionBuilder, type SqlBool, sql } from 'kysely';
import { addressGroup } from '../../auth/address-group.ts';
import { deleteRows } from '../../store/delete-rows.ts';
import { listRows } from '../../store/list-rows.ts';
import { keptCount } from '../../store/row-counts.ts';
import type { AuditRow, Database, Schema } from '../../store/schema.ts';
import { userNumbers } from '../accounts/user-numbers.ts';
import { DailyRefusals } from './daily-refusals.ts';
import { RepeatedRefusals } from './repeated-refusals.ts';
import { withoutSecretArguments } from './secret-arguments.ts';
import { nextSequence } from './sequence.ts';
import { Strangers } from './strangers.ts';

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
  /** Fields of the body that come first where not all of it can be kept. */
  knownFields?: readonly string[];
  /**
   * Of a login only: a hash of the user name that was typed. It distinguishes guesses at several unknown names, and is not kept,
   * since people type passwords there.
   */
  subject?: string;
}

export interface AuditRecord {
  id: string;
  created: string;
  user: { id: number | null; username: string };
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
  /** How often this was refused, until `last_time`. */
  count: number;
  last_time: string;
}

export const AUDIT_OUTCOMES = ['done', 'refused'] as const;
export type AuditOutcome = (typeof AUDIT_OUTCOMES)[number];

export interface AuditFilter {
  user?: string | undefined;
  /** An id, or a user's number. */
  entity?: string | undefined;
  /** Part of the action. */
  name?: string | undefined;
  /** Asked for, or repeated, at this instant or later. */
  since?: Date | undefined;
  /** Asked for before. */
  until?: Date | undefined;
  outcome?: AuditOutcome | undefined;
  descending: boolean;
  limit: number;
  offset: number;
}

/** As it is kept. Whatever is sent, a record has at most 12 KiB. */
const MAX_REQUEST_BYTES = 8192;
/** Of every other text of a record. */
const MAX_TEXT_BYTES = 512;
const MAX_PATH_BYTES = 1024;
/** Refusals that say nothing of the thing that was asked for. */
const REFUSALS = new Set([400, 401, 403, 404, 405, 429]);
const TOO_MANY = 429;
/** Of the bound on records so much, divided by days, may be of strangers; and at least so many each day. */
const STRANGERS_PART = 1 / 4;
const STRANGERS_RECORDS_PER_DAY = 10;
/** No user's name, and no address. */
const SEVERAL = '(several)';
const NOBODY = { subject: SEVERAL, userId: null, username: SEVERAL, entityId: null };
const CUT_AFTER = 1000;
/** What a guest is given to read may be a secret, whatever it is called; and so may the address of a webhook. */
const CONTENT = new Set(['input-data', 'buf-b64', 'env', 'content', 'keys', 'unattend', 'url']);

export class AuditService {
  readonly #db: Database;
  readonly #maxRecords: number;
  readonly #refusals = new RepeatedRefusals();
  readonly #daily = new DailyRefusals();
  readonly #strangers: Strangers;
  readonly #pending = new Set<Promise<void>>();
  #sinceCut = 0;

  /** @param keep the oldest records go when there are more, or when they are older */
  constructor(db: Database, keep: { audit_records: number; audit_days: number }) {
    this.#db = db;
    this.#maxRecords = keep.audit_records;
    const perDay = Math.floor((keep.audit_records * STRANGERS_PART) / keep.audit_days);
    this.#strangers = new Strangers(Math.max(STRANGERS_RECORDS_PER_DAY, perDay));
  }

  /** Settles as this does, which writes records after an answer is out. */
  during(writing: Promise<void>): Promise<void> {
    this.#pending.add(writing);
    return writing.finally(() => this.#pending.delete(writing));
  }

  /** Nothing is being written any more. */
  async settled(): Promise<void> {
    while (this.#pending.size > 0) await Promise.allSettled(this.#pending);
  }

  /** Writes a record, or counts it when there is a record of the same refusal. */
  async record(entry: AuditEntry): Promise<void> {
    const now = new Date();
    const id = newId();
    if (entry.subject !== undefined && REFUSALS.has(entry.status))
      return this.#recordStranger(entry, id, now);
    const kind = refusalKind(entry);
    if (kind !== undefined && this.#refusals.meet(kind, id, now)) return;
    await this.#write(entry, id, now, kind);
  }

  /** Refusals of strangers are written only as far as they do not fill the log. For a user each guess is counted, however it is written. */
  async #recordStranger(attempt: AuditEntry, id: string, now: Date): Promise<void> {
    const subject = attempt.status === TOO_MANY ? undefined : attempt.subject;
    const exactness = this.#strangers.meet(addressGroup(attempt.address), subject, now);
    const entry = exactness === 'named' ? attempt : { ...attempt, ...NOBODY };
    const kind = refusalKind(entry)!;
    const written = exactness === 'folded' ? 'not' : this.#roomFor(kind, id, now);
    if (written === 'not') this.#countOfDay({ ...attempt, ...NOBODY }, now);
    if (attempt.userId !== null && (written === 'not' || exactness === 'placed'))
      this.#countOfDay(attempt, now);
    if (written === 'now') await this.#write(entry, id, now, kind);
  }

  /** Whether a stranger's refusal is written now, is counted in an earlier record, or is not written. */
  #roomFor(kind: string, id: string, now: Date): 'now' | 'before' | 'not' {
    if (this.#refusals.meet(kind, id, now)) return 'before';
    if (this.#strangers.takeRecord(now)) return 'now';
    this.#refusals.forget(kind);
    return 'not';
  }

  #countOfDay(attempt: AuditEntry, now: Date): void {
    const entry = { ...attempt, address: SEVERAL };
    this.#daily.count(refusalKind(entry)!, now, () => rowOf(entry, newId(), now));
  }

  async #write(entry: AuditEntry, id: string, now: Date, kind: string | undefined): Promise<void> {
    try {
      await this.#db
        .insertInto('audit')
        .values(rowOf(entry, id, now))
        .execute();
    } catch (error) {
      if (kind !== undefined) this.#refusals.forget(kind);
      throw error;
    }
    this.#sinceCut += 1;
    if (this.#sinceCut >= CUT_AFTER) await this.cut();
  }

  /** Writes down how often refusals were repeated since; at most a few seconds of counts are lost in a crash. */
  async flush(): Promise<void> {
    for (const { id, count, lastTime } of this.#refusals.takeGrown()) {
      await this.#db.updateTable('audit').set({ count, last_time: lastTime }).where('id', '=', id).execute();
    }
    await this.#daily.writeGrown(async row => {
      const { count, last_time } = row;
      await this.#db
        .insertInto('audit')
        .values(row)
        .onConflict(conflict => conflict.column('id').doUpdateSet({ count, last_time }))
        .execute();
    });
  }

  /** Deletes the oldest records above the bound. @returns how many. */
  async cut(): Promise<number> {
    this.#sinceCut = 0;
    const above = ((await keptCount(this.#db, 'audit', {})) ?? 0) - this.#maxRecords;
    if (above <= 0) return 0;
    const last = await this.#db
      .selectFrom('audit')
      .select('sequence')
      .orderBy('sequence')
      .limit(1)
      .offset(above - 1)
      .executeTakeFirst();
    if (last === undefined) return 0;
    return deleteRows(this.#db, 'audit', rows => rows.where('sequence', '<=', last.sequence));
  }

  async list(filter: AuditFilter): Promise<{ count: number; records: AuditRecord[] }> {
    await this.flush();
    const { user, name, descending, limit, offset } = filter;
    const { count, rows } = await listRows(this.#db, 'audit', {
      equal: { username: user },
      containing: { action: name },
      and: eb => conditions(eb, filter),
      orderBy: ['sequence'],
      descending,
      limit,
      offset,
    });
    const named = rows.flatMap(row => [{ user_id: row.user_id }, { user_id: row.entity_id }]);
    const numbers = await userNumbers(this.#db, named);
    return { count, records: rows.map(row => auditRecord(row, numbers)) };
  }

  prune(before: Date): Promise<number> {
    return deleteRows(this.#db, 'audit', rows => rows.where('created', '<', before.toISOString()));
  }
}

/** From this status on a request was refused. */
const REFUSED = 400;

function conditions(
  eb: ExpressionBuilder<Schema, 'audit'>,
  { entity, since, until, outcome }: AuditFilter,
): Expression<SqlBool>[] {
  const found: Expression<SqlBool>[] = [];
  if (entity !== undefined) found.push(concerns(eb, entity));
  if (since !== undefined) {
    const from = since.toISOString();
    found.push(eb.or([eb('created', '>=', from), eb('last_time', '>=', from)]));
  }
  if (until !== undefined) found.push(eb('created', '<', until.toISOString()));
  if (outcome !== undefined) found.push(eb('status', outcome === 'done' ? '<' : '>=', REFUSED));
  return found;
}

/** Some records of users were written by number. */
function concerns(eb: ExpressionBuilder<Schema, 'audit'>, entity: string) {
  if (!/^\d+$/.test(entity)) return eb('entity_id', '=', entity);
  const number = Number(entity);
  const numbered = eb
    .selectFrom('users')
    .select('id')
    .where('number', '=', number)
    .union(eb.selectFrom('removed_users').select('id').where('number', '=', number));
  return eb('entity_id', 'in', numbered.unionAll(sql<{ id: string }>`select ${entity}`));
}

function rowOf(entry: AuditEntry, id: string, now: Date): AuditRow {
  return {
    id,
    sequence: nextSequence(),
    created: now.toISOString(),
    user_id: entry.userId,
    username: bounded(entry.username),
    address: bounded(entry.address),
    method: entry.method,
    path: bounded(entry.path, MAX_PATH_BYTES),
    action: bounded(entry.action),
    entity_id: entry.entityId === null ? null : bounded(entry.entityId),
    status: entry.status,
    error_key: entry.errorKey,
    task_id: entry.taskId,
    request_id: bounded(entry.requestId),
    request_json: requestJson(entry.body, entry.knownFields),
    count: 1,
    last_time: null,
  };
}

/** What repetitions of a refusal have in common; undefined for an action that always has its own record. */
function refusalKind(entry: AuditEntry): string | undefined {
  if (!REFUSALS.has(entry.status)) return undefined;
  const { subject, userId, address, action, status, errorKey } = entry;
  return JSON.stringify([subject ?? userId, addressGroup(address), action, status, errorKey]);
}

/**
 * The body with secrets removed, cut when it is long (then it is a text that says so).
 * @param knownFields come first then, so that nobody hides the request behind unknown fields
 */
export function requestJson(body: unknown, knownFields: readonly string[] = []): string {
  const kept = withoutContent(redact(body));
  const whole = JSON.stringify(kept) ?? 'null';
  if (Buffer.byteLength(whole) <= MAX_REQUEST_BYTES) return whole;
  return cutText(JSON.stringify(inOrder(kept, knownFields)));
}

/** A text as JSON, of which as much is kept as fits: signs that are escaped or outside of ASCII take more bytes than one. */
function cutText(text: string): string {
  const note = `… (cut: ${text.length} characters)`;
  for (let kept = MAX_REQUEST_BYTES; ; kept = Math.floor(kept * 0.8)) {
    const json = JSON.stringify(text.slice(0, kept) + note);
    if (Buffer.byteLength(json) <= MAX_REQUEST_BYTES) return json;
  }
}

function bounded(text: string, maxBytes = MAX_TEXT_BYTES): string {
  const bytes = Buffer.from(text);
  return bytes.length <= maxBytes ? text : `${bytes.toString('utf8', 0, maxBytes)}…`;
}

function inOrder(value: unknown, first: readonly string[]): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const fields = Object.entries(value);
  const isFirst = (name: string) => first.includes(name);
  return Object.fromEntries([
    ...fields.filter(([name]) => isFirst(name)),
    ...fields.filter(([name]) => !isFirst(name)),
  ]);
}

function withoutContent(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || isExact(value)) return value;
  if (Array.isArray(value)) return value.map(withoutContent);
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [
      name,
      CONTENT.has(name) ? '[redacted]' : withoutContent(name === 'arg' ? withoutSecretArguments(item) : item),
    ]),
  );
}

/** @param numbers of users, by which clients know them */
function auditRecord(row: AuditRow, numbers: ReadonlyMap<string, number>): AuditRecord {
  return {
    id: row.id,
    created: row.created,
    user: { id: numbers.get(row.user_id ?? '') ?? null, username: row.username },
    address: row.address,
    method: row.method,
    path: row.path,
    action: row.action,
    entity: numbers.get(row.entity_id ?? '')?.toString() ?? row.entity_id,
    status: row.status,
    error: row.error_key,
    task: row.task_id,
    request_id: row.request_id,
    request: parseExact(row.request_json),
    count: row.count,
    last_time: row.last_time ?? row.created,
  };
}
