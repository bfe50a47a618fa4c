/**
 * The outbox: what targets are to be told, one row for each message and target, from the moment that it is raised until it is old. A row is
 * changed after its message was sent, so a crash in between sends it again, under the same id: at least once, never not at all.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { ExpressionBuilder } from 'kysely';
import { deleteRows } from '../../store/delete-rows.ts';
import { listRows } from '../../store/list-rows.ts';
import type { Database, NotificationRow, Schema } from '../../store/schema.ts';
import { nextSequence } from '../journal/sequence.ts';
import { MAX_DELAY_MS, nextAttempt } from './attempts.ts';
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
        reached_json: '[]',
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
      .where(isDue(now))
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
      .where(isDue(now))
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

  /**
   * @param reached recipients of a mail that have it all the same
   * @returns whether that was the last attempt
   */
  async failed(
    row: NotificationRow,
    now: Date,
    { reason, reached = [] }: { reason: string; reached?: readonly string[] },
  ): Promise<boolean> {
    const columns = afterFailure(row.attempts, now, reason);
    await this.#settle(row.id, {
      ...columns,
      reached_json: JSON.stringify([...reachedBy(row), ...reached]),
    });
    return columns.status === 'dead';
  }

  /**
   * What else is due for a target that cannot be reached has failed with what was sent: each would wait for an attempt of its own, and a
   * long queue for ever. @returns how many were given up
   */
  async failedToo(targetId: string, now: Date, reason: string): Promise<number> {
    return this.#db.transaction().execute(async trx => {
      const due = await trx
        .selectFrom('notifications')
        .select('attempts')
        .distinct()
        .where('target_id', '=', targetId)
        .where(isDue(now))
        .execute();
      let givenUp = 0;
      // what was put off is due no more: each is counted once
      for (const { attempts } of due) {
        const columns = afterFailure(attempts, now, reason);
        const { numUpdatedRows } = await trx
          .updateTable('notifications')
          .set(columns)
          .where('target_id', '=', targetId)
          .where('attempts', '=', attempts)
          .where(isDue(now))
          .executeTakeFirst();
        if (columns.status === 'dead') givenUp += Number(numUpdatedRows);
      }
      return givenUp;
    });
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

  /** Forgets what was raised before then, but what is still tried: the clock may be ahead. @returns how many. */
  prune(before: Date): Promise<number> {
    return deleteRows(this.#db, 'notifications', rows =>
      rows
        .where('created', '<', before.toISOString())
        .where(({ or, eb, selectFrom }) =>
          or([
            eb('status', '!=', 'pending'),
            eb(
              'target_id',
              'not in',
              selectFrom('notification_targets').select('id').where('enabled', '=', 1),
            ),
          ]),
        ),
    );
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

/** Recipients of a mail that have it, though it is to be sent to others again. */
export const reachedBy = ({ reached_json }: NotificationRow) => JSON.parse(reached_json) as string[];

/** A time that is further away than any attempt is put off was written by a clock that was ahead. */
const isDue = (now: Date) => (eb: ExpressionBuilder<Schema, 'notifications'>) =>
  eb('status', '=', 'pending').and(
    eb('next_attempt', '<=', now.toISOString()).or(
      'next_attempt',
      '>',
      new Date(now.getTime() + MAX_DELAY_MS).toISOString(),
    ),
  );

/** @param before how many attempts had failed until then */
function afterFailure(before: number, now: Date, reason: string) {
  const attempts = before + 1;
  const next = nextAttempt(attempts, now);
  return {
    status: next === undefined ? ('dead' as const) : ('pending' as const),
    attempts,
    next_attempt: next?.toISOString() ?? null,
    last_attempt: now.toISOString(),
    reason,
  };
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
