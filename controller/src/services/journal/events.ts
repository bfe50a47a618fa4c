/** Events: what happened, for people. Kept in the database and told on the event stream. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { deleteRows } from '../../store/delete-rows.ts';
import { listRows } from '../../store/list-rows.ts';
import type { Database, EventRow } from '../../store/schema.ts';
import { type ChangeFeed, forAll } from './changes.ts';
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
  task?: string | undefined;
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
    this.#changes.publish({
      kind: 'event',
      entityId: row.id,
      action: 'created',
      render: () => record,
      sameFor: forAll,
    });
    return record;
  }

  /** One page of events and the number of all that match. */
  async list(filter: EventFilter): Promise<{ count: number; events: EventRecord[] }> {
    const { type, user, entity, task, name, ordering, limit, offset } = filter;
    const { count, rows } = await listRows(this.#db, 'events', {
      equal: { type, user, task_id: task },
      containing: { message: name },
      and: eb => {
        const concerned = eb.selectFrom('event_entities').select('event_id');
        return entity === undefined ? [] : [eb('id', 'in', concerned.where('entity_id', '=', entity))];
      },
      orderBy: [ordering.field === 'created' ? 'sequence' : ordering.field, 'id'],
      descending: ordering.descending,
      limit,
      offset,
    });
    return { count, events: await this.#complete(rows) };
  }

  /** @throws event_not_found, also when it was pruned. */
  async get(id: string): Promise<EventRecord> {
    const rows = await this.#db.selectFrom('events').selectAll().where('id', '=', id).execute();
    const [record] = await this.#complete(rows);
    if (record === undefined) throw new VirtkeepError('event_not_found', { id });
    return record;
  }

  /** Deletes events older than this. @returns how many. */
  prune(before: Date): Promise<number> {
    return deleteRows(this.#db, 'events', rows => rows.where('created', '<', before.toISOString()));
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
