/** Events: what happened, for people. Kept in the database and told on the event stream. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { contains } from '../../store/dialect.ts';
import type { Database, EventRow } from '../../store/schema.ts';
import type { ChangeFeed } from './changes.ts';
import { nextSequence } from './sequence.ts';

export const EVENT_TYPES = ['info', 'warning', 'error'] as const;
export type EventType = (typeof EVENT_TYPES)[number];

export interface NewEvent {
  type: EventType;
  message: string;
  detailMessage?: string;
  /** User name; "system" for what nobody asked for. */
  user?: string;
  taskId?: string | null;
  entities?: readonly { id: string; class: string }[];
}

export interface EventRecord {
  id: string;
  type: EventType;
  message: string;
  detail_message: string;
  user: string;
  created: string;
  task: string | null;
  entities: { entity_uuid: string; entity_class: string }[];
}

export interface EventFilter {
  type?: string | undefined;
  user?: string | undefined;
  entity?: string | undefined;
  name?: string | undefined;
  ordering: { field: 'created' | 'type' | 'user'; descending: boolean };
  limit: number;
  offset: number;
}

export class EventService {
  readonly #db: Database;
  readonly #changes: ChangeFeed;

  constructor(db: Database, changes: ChangeFeed) {
    this.#db = db;
    this.#changes = changes;
  }

  /** Writes the event and tells the stream's listeners. */
  async record(event: NewEvent): Promise<EventRecord> {
    const row: EventRow = {
      id: newId(),
      sequence: nextSequence(),
      type: event.type,
      message: event.message,
      detail_message: event.detailMessage ?? '',
      user: event.user ?? 'system',
      created: new Date().toISOString(),
      task_id: event.taskId ?? null,
    };
    const entities = event.entities ?? [];
    await this.#db.transaction().execute(async trx => {
      await trx.insertInto('events').values(row).execute();
      for (const [position, entity] of entities.entries()) {
        await trx
          .insertInto('event_entities')
          .values({ event_id: row.id, position, entity_id: entity.id, entity_class: entity.class })
          .onConflict(conflict => conflict.doNothing())
          .execute();
      }
    });
    const record = eventRecord(row, entities);
    this.#changes.publish({ kind: 'event', entityId: row.id, action: 'created', render: () => record });
    return record;
  }

  /** One page of events and the number of all that match. */
  async list(filter: EventFilter): Promise<{ count: number; events: EventRecord[] }> {
    let query = this.#db.selectFrom('events');
    if (filter.type !== undefined) query = query.where('type', '=', filter.type);
    if (filter.user !== undefined) query = query.where('user', '=', filter.user);
    if (filter.name !== undefined) query = query.where(contains('message', filter.name));
    if (filter.entity !== undefined) {
      const entity = filter.entity;
      query = query.where('id', 'in', eb =>
        eb.selectFrom('event_entities').select('event_id').where('entity_id', '=', entity),
      );
    }
    const total = await query
      .select(({ fn }) => fn.countAll<number>().as('number'))
      .executeTakeFirstOrThrow();
    const direction = filter.ordering.descending ? 'desc' : 'asc';
    const rows = await query
      .selectAll()
      .orderBy(filter.ordering.field === 'created' ? 'sequence' : filter.ordering.field, direction)
      .orderBy('id', direction)
      .limit(filter.limit)
      .offset(filter.offset)
      .execute();
    return { count: Number(total.number), events: await this.#complete(rows) };
  }

  /** @throws event_not_found, also when it was pruned. */
  async get(id: string): Promise<EventRecord> {
    const rows = await this.#db.selectFrom('events').selectAll().where('id', '=', id).execute();
    const [record] = await this.#complete(rows);
    if (record === undefined) throw new VirtkeepError('event_not_found', { id });
    return record;
  }

  /** Deletes events older than this. @returns how many. */
  async prune(before: Date): Promise<number> {
    const result = await this.#db
      .deleteFrom('events')
      .where('created', '<', before.toISOString())
      .executeTakeFirst();
    return Number(result.numDeletedRows);
  }

  async #complete(rows: EventRow[]): Promise<EventRecord[]> {
    if (rows.length === 0) return [];
    const entities = await this.#db
      .selectFrom('event_entities')
      .selectAll()
      .where(
        'event_id',
        'in',
        rows.map(row => row.id),
      )
      .orderBy('position')
      .execute();
    return rows.map(row =>
      eventRecord(
        row,
        entities
          .filter(entity => entity.event_id === row.id)
          .map(entity => ({ id: entity.entity_id, class: entity.entity_class })),
      ),
    );
  }
}

function eventRecord(row: EventRow, entities: readonly { id: string; class: string }[]): EventRecord {
  return {
    id: row.id,
    type: row.type as EventType,
    message: row.message,
    detail_message: row.detail_message,
    user: row.user,
    created: row.created,
    task: row.task_id,
    entities: entities.map(entity => ({ entity_uuid: entity.id, entity_class: entity.class })),
  };
}
