/**
 * The outbox: what targets are to be told, one row for each message and target, from the moment that it is raised until it is old. A row is
 * changed after its message was sent, so a crash in between sends it again, under the same id: at least once, never not at all.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { listRows } from '../../store/list-rows.ts';
import type { Database, NotificationRow } from '../../store/schema.ts';
import { nextSequence } from '../journal/sequence.ts';
import { nextAttempt } from './attempts.ts';
import type { AnyEventName, NotificationEvent } from './events.ts';
import type { NotificationRecord, NotificationStatus } from './record.ts';

export interface NotificationFilter {
  status?: NotificationStatus | undefined;
  target?: string | undefined;
  event?: AnyEventName | undefined;
  /** Part of the event's name. */
  name?: string | undefined;
  descending: boolean;
  limit: number;
  offset: number;
}

export class Outbox {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Writes a message for each of these targets that has none under this key.
   * @param db or a transaction of the caller's
   * @returns how many were written
   */
  async put(
    { event, data }: NotificationEvent,
    targetIds: readonly string[],
    { key, now }: { key: string; now: Date },
    db: Database,
  ): Promise<number> {
    if (targetIds.length === 0) return 0;
    const time = now.toISOString();
    const data_json = JSON.stringify(data);
    const rows = targetIds.map(
      (target_id): NotificationRow => ({
        id: newId(),
        sequence: nextSequence(),
        target_id,
        event,
        key,
        data_json,
        status: 'pending',
        attempts: 0,
        next_attempt: time,
        last_attempt: null,
        reason: '',
        created: time,
      }),
    );
    const result = await db
      .insertInto('notifications')
      .values(rows)
      .onConflict(conflict => conflict.columns(['target_id', 'key']).doNothing())
      .executeTakeFirst();
    return Number(result.numInsertedOrUpdatedRows ?? 0);
  }

  /** Ids of the targets that something is due for; not of those that are switched off. */
  async dueTargets(now: Date): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('notifications')
      .innerJoin('notification_targets', 'notification_targets.id', 'notifications.target_id')
      .select('target_id')
      .distinct()
      .where('status', '=', 'pending')
      .where('next_attempt', '<=', now.toISOString())
      .where('enabled', '=', 1)
      .execute();
    return rows.map(({ target_id }) => target_id);
  }

  /** Ids of what is due for a target, the oldest first. */
  async due(targetId: string, now: Date): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('notifications')
      .select('id')
      .where('target_id', '=', targetId)
      .where('status', '=', 'pending')
      .where('next_attempt', '<=', now.toISOString())
      .orderBy('sequence')
      .execute();
    return rows.map(({ id }) => id);
  }

  /** Undefined when it waits no longer: somebody has removed it. */
  pending(id: string): Promise<NotificationRow | undefined> {
    return this.#db
      .selectFrom('notifications')
      .selectAll()
      .where('id', '=', id)
      .where('status', '=', 'pending')
      .executeTakeFirst();
  }

  async sent({ id, attempts }: NotificationRow, now: Date, reason: string): Promise<void> {
    const last_attempt = now.toISOString();
    await this.#settle(id, {
      status: 'sent',
      attempts: attempts + 1,
      next_attempt: null,
      last_attempt,
      reason,
    });
  }

  /** @returns whether that was the last attempt. */
  async failed({ id, attempts: before }: NotificationRow, now: Date, reason: string): Promise<boolean> {
    const attempts = before + 1;
    const next = nextAttempt(attempts, now);
    await this.#settle(id, {
      status: next === undefined ? 'dead' : 'pending',
      attempts,
      next_attempt: next?.toISOString() ?? null,
      last_attempt: now.toISOString(),
      reason,
    });
    return next === undefined;
  }

  async #settle(id: string, columns: Partial<NotificationRow>): Promise<void> {
    await this.#db.updateTable('notifications').set(columns).where('id', '=', id).execute();
  }

  /** Makes it due now, with all its attempts. @throws notification_not_found, notification_sent. */
  async retry(id: string, now: Date): Promise<NotificationRecord> {
    const { status, last_attempt } = await this.#row(id);
    if (status === 'sent') throw new VirtkeepError('notification_sent', { id, time: last_attempt ?? '' });
    await this.#db
      .updateTable('notifications')
      .set({ status: 'pending', attempts: 0, next_attempt: now.toISOString() })
      .where('id', '=', id)
      .where('status', '!=', 'sent')
      .execute();
    return this.get(id);
  }

  /** @throws notification_not_found. */
  async get(id: string): Promise<NotificationRecord> {
    return recordOf(await this.#row(id), await this.#names());
  }

  async list(filter: NotificationFilter): Promise<{ count: number; records: NotificationRecord[] }> {
    const { status, target, event, name, descending, limit, offset } = filter;
    const { count, rows } = await listRows(this.#db, 'notifications', {
      equal: { status, target_id: target, event },
      containing: { event: name },
      orderBy: ['created', 'sequence'],
      descending,
      limit,
      offset,
    });
    const names = await this.#names();
    return { count, records: rows.map(row => recordOf(row, names)) };
  }

  /** Forgets one, delivered or not. @throws notification_not_found. */
  async remove(id: string): Promise<void> {
    await this.#row(id);
    await this.#db.deleteFrom('notifications').where('id', '=', id).execute();
  }

  /** How many were given up. */
  async deadLetters(): Promise<number> {
    const { total } = await this.#db
      .selectFrom('notifications')
      .select(({ fn }) => fn.countAll<number>().as('total'))
      .where('status', '=', 'dead')
      .executeTakeFirstOrThrow();
    return Number(total);
  }

  /** Forgets what was raised before then. @returns how many. */
  async prune(before: Date): Promise<number> {
    const result = await this.#db
      .deleteFrom('notifications')
      .where('created', '<', before.toISOString())
      .executeTakeFirst();
    return Number(result.numDeletedRows);
  }

  async #row(id: string): Promise<NotificationRow> {
    const row = await this.#db
      .selectFrom('notifications')
      .selectAll()
      .where('id', '=', id)
      .executeTakeFirst();
    if (row === undefined) throw new VirtkeepError('notification_not_found', { id });
    return row;
  }

  async #names(): Promise<Map<string, string>> {
    const rows = await this.#db.selectFrom('notification_targets').select(['id', 'verbose_name']).execute();
    return new Map(rows.map(({ id, verbose_name }) => [id, verbose_name]));
  }
}

function recordOf(row: NotificationRow, names: ReadonlyMap<string, string>): NotificationRecord {
  const { id, target_id, key, status, attempts, next_attempt, last_attempt, reason, created } = row;
  return {
    id,
    target: { id: target_id, verbose_name: names.get(target_id) ?? '' },
    event: row.event as AnyEventName,
    key,
    status,
    attempts,
    next_attempt,
    last_attempt,
    reason,
    created,
    data: JSON.parse(row.data_json) as object,
  };
}
