/** The rows behind the tasks; decides nothing. */
import type { Database, TaskRow } from '../../store/schema.ts';
import { userNumbers } from '../accounts/user-numbers.ts';
import { listTasks, type TaskFilter } from './list.ts';
import type { TaskEntity } from './record.ts';

/** A task with everything its services need; `record` is what users see. */
export interface TaskState {
  row: TaskRow;
  /** Number of the user who began it; 0 when there is no such user. */
  userNumber: number;
  entities: TaskEntity[];
  events: string[];
  /** Result record, once it succeeded. */
  result: unknown;
}

export class TaskStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Durable when it returns. A part of a task that is to end is to end, too. @returns the row as it is then */
  async insert(row: TaskRow, entities: readonly TaskEntity[]): Promise<TaskRow> {
    return this.#db.transaction().execute(async trx => {
      const parent =
        row.parent === null
          ? undefined
          : await trx
              .selectFrom('tasks')
              .select('cancel_requested')
              .where('id', '=', row.parent)
              .executeTakeFirst();
      const whole = { ...row, cancel_requested: parent?.cancel_requested ?? row.cancel_requested };
      await trx.insertInto('tasks').values(whole).execute();
      const rows = entityRows(row.id, entities);
      if (rows.length > 0) await trx.insertInto('task_entities').values(rows).execute();
      return whole;
    });
  }

  /** Sets single columns. */
  async set(id: string, columns: Partial<TaskRow>): Promise<void> {
    await this.#db.updateTable('tasks').set(columns).where('id', '=', id).execute();
  }

  /**
   * Replaces the row, and the entities when they are given. What users ask for is set by itself (`set`): it may have
   * come after the row was read.
   */
  async write(row: TaskRow, entities?: TaskEntity[]): Promise<void> {
    const { id, cancel_requested: _cancel, locks_released: _release, ...columns } = row;
    await this.#db.transaction().execute(async trx => {
      await trx.updateTable('tasks').set(columns).where('id', '=', id).execute();
      if (entities === undefined) return;
      await trx.deleteFrom('task_entities').where('task_id', '=', id).execute();
      const rows = entityRows(id, entities);
      if (rows.length > 0) await trx.insertInto('task_entities').values(rows).execute();
    });
  }

  /** The rows with their entities and events. */
  async complete(rows: TaskRow[]): Promise<TaskState[]> {
    if (rows.length === 0) return [];
    const ids = rows.map(row => row.id);
    const entities = await this.#db
      .selectFrom('task_entities')
      .selectAll()
      .where('task_id', 'in', ids)
      .orderBy('position')
      .execute();
    const events = await this.#db
      .selectFrom('events')
      .select(['id', 'task_id'])
      .where('task_id', 'in', ids)
      .orderBy('sequence')
      .execute();
    const numbers = await userNumbers(this.#db, rows);
    return rows.map(row => ({
      row,
      userNumber: numbers.get(row.user_id) ?? 0,
      entities: entities
        .filter(entity => entity.task_id === row.id)
        .map(entity => ({ id: entity.entity_id, class: entity.entity_class })),
      events: events.filter(event => event.task_id === row.id).map(event => event.id),
      result: parseResult(row),
    }));
  }

  /** Of a task that was just made. */
  async userNumber(row: TaskRow): Promise<number> {
    return (await userNumbers(this.#db, [row])).get(row.user_id) ?? 0;
  }

  async find(id: string): Promise<TaskState | undefined> {
    const row = await this.#db.selectFrom('tasks').selectAll().where('id', '=', id).executeTakeFirst();
    if (row === undefined) return undefined;
    const [state] = await this.complete([row]);
    return state;
  }

  async list(filter: TaskFilter): Promise<{ count: number; tasks: TaskState[] }> {
    const { count, rows } = await listTasks(this.#db, filter);
    return { count, tasks: await this.complete(rows) };
  }

  /** All tasks without an outcome (of one node, when given), oldest first. */
  async unfinished(nodeId?: string): Promise<TaskState[]> {
    let query = this.#db
      .selectFrom('tasks')
      .selectAll()
      .where('status', 'in', ['IN_PROGRESS', 'LOST'])
      .orderBy('created');
    if (nodeId !== undefined) query = query.where('node_id', '=', nodeId);
    return this.complete(await query.execute());
  }

  /** All parts of a multitask. */
  async parts(parent: string): Promise<TaskState[]> {
    return this.complete(
      await this.#db.selectFrom('tasks').selectAll().where('parent', '=', parent).execute(),
    );
  }

  /** Writes down that all parts of a multitask are to end. @returns the ids of those that can be cancelled now. */
  async wishEndOfParts(parent: string): Promise<string[]> {
    await this.#db
      .updateTable('tasks')
      .set({ cancel_requested: 1 })
      .where('parent', '=', parent)
      .where('status', 'in', ['IN_PROGRESS', 'LOST'])
      .execute();
    const rows = await this.#db
      .selectFrom('tasks')
      .select('id')
      .where('parent', '=', parent)
      .where('status', '=', 'IN_PROGRESS')
      .where('is_cancellable', '=', 1)
      .execute();
    return rows.map(row => row.id);
  }

  /** Running tasks of the node become LOST. @returns their ids. */
  async lose(nodeId: string): Promise<string[]> {
    const rows = await this.#db
      .updateTable('tasks')
      .set({ status: 'LOST' })
      .where('node_id', '=', nodeId)
      .where('status', '=', 'IN_PROGRESS')
      .returning('id')
      .execute();
    return rows.map(row => row.id);
  }

  /** Nodes of the tasks that are LOST, by the task's id. */
  async lost(): Promise<Map<string, string>> {
    const rows = await this.#db
      .selectFrom('tasks')
      .select(['id', 'node_id'])
      .where('status', '=', 'LOST')
      .execute();
    return new Map(rows.map(row => [row.id, row.node_id ?? '']));
  }

  async isToEnd(id: string): Promise<boolean> {
    const row = await this.#db
      .selectFrom('tasks')
      .select('cancel_requested')
      .where('id', '=', id)
      .executeTakeFirst();
    return row?.cancel_requested === 1;
  }

  /** Number of tasks by status. */
  async counts(): Promise<Record<string, number>> {
    const rows = await this.#db
      .selectFrom('tasks')
      .select(({ fn }) => ['status', fn.countAll<number>().as('number')])
      .groupBy('status')
      .execute();
    return Object.fromEntries(rows.map(row => [row.status, Number(row.number)]));
  }

  /** Deletes finished tasks older than this. @returns how many. */
  async prune(before: Date): Promise<number> {
    const result = await this.#db
      .deleteFrom('tasks')
      .where('finished_time', '<', before.toISOString())
      .where('status', 'not in', ['IN_PROGRESS', 'LOST'])
      .executeTakeFirst();
    return Number(result.numDeletedRows);
  }
}

function entityRows(taskId: string, entities: readonly TaskEntity[]) {
  const unique = entities.filter((entity, index) => entities.findIndex(e => e.id === entity.id) === index);
  return unique.map((entity, position) => ({
    task_id: taskId,
    position,
    entity_id: entity.id,
    entity_class: entity.class,
  }));
}

/** Result record of a row, once it succeeded. */
export function parseResult(row: TaskRow): unknown {
  return row.result_json === null ? null : JSON.parse(row.result_json);
}
