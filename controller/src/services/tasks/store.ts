/** The rows behind the tasks; decides nothing. */
import { shareLoop } from '@virtkeep/shared/turns';
import { deleteRows } from '../../store/delete-rows.ts';
import { piecesOf } from '../../store/pieces.ts';
import { countsByFirst } from '../../store/row-counts.ts';
import type { Database, TaskRow } from '../../store/schema.ts';
import { userNumbers } from '../accounts/user-numbers.ts';
import { listTasks, type TaskFilter } from './list.ts';
import type { TaskEntity } from './record.ts';
import { RunningTasks } from './running-tasks.ts';

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

/** So long progress is in memory only, ms. */
const PROGRESS_MS = 3000;
const WRITTEN_AT_ONCE = 50;

export class TaskStore {
  readonly #db: Database;
  readonly #running = new RunningTasks();
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Durable when it returns. A part of a task that is to end is to end, too. */
  async insert(row: TaskRow, entities: readonly TaskEntity[]): Promise<TaskState> {
    const userNumber = (await userNumbers(this.#db, [row])).get(row.user_id) ?? 0;
    try {
      return await this.#db.transaction().execute(async trx => {
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
        const state = { row: whole, userNumber, entities: [...entities], events: [], result: null };
        // before anybody else can write to it
        this.#running.keep(state);
        return state;
      });
    } catch (error) {
      this.#running.drop(row.id);
      throw error;
    }
  }

  /** Sets single columns. */
  async set(id: string, columns: Partial<TaskRow>): Promise<void> {
    await this.#db.updateTable('tasks').set(columns).where('id', '=', id).execute();
    this.#running.set(id, columns);
  }

  /**
   * Replaces the row, and the entities when they are given. What users ask for is set by itself (`set`): it may have
   * come after the row was read.
   */
  async write(state: TaskState, entities?: TaskEntity[]): Promise<void> {
    const { id, cancel_requested: _cancel, locks_released: _release, ...columns } = state.row;
    await this.#db.transaction().execute(async trx => {
      await trx.updateTable('tasks').set(columns).where('id', '=', id).execute();
      if (entities === undefined) return;
      await trx.deleteFrom('task_entities').where('task_id', '=', id).execute();
      const rows = entityRows(id, entities);
      if (rows.length > 0) await trx.insertInto('task_entities').values(rows).execute();
    });
    if (state.row.status === 'IN_PROGRESS')
      await this.#keep({ ...state, entities: entities ?? state.entities });
    else this.#running.drop(id);
  }

  /** What others have written since the row was read is read once it would be seen. */
  async #keep(state: TaskState): Promise<void> {
    const { id } = state.row;
    const isKnown = this.#running.find(id) !== undefined;
    this.#running.keep(state);
    if (isKnown) return;
    const now = await this.#db
      .selectFrom('tasks')
      .select(['status', 'cancel_requested', 'locks_released'])
      .where('id', '=', id)
      .executeTakeFirst();
    if (now?.status === 'IN_PROGRESS') this.#running.set(id, now);
    else this.#running.drop(id);
  }

  /** How far a task that runs is: shown from now on, and written soon. @returns false when it must be written (`write`). */
  progressed(state: TaskState): boolean {
    if (!this.#running.progressed(state)) return false;
    if (this.#timer) return true;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      // tried again with the next progress
      this.flush().catch(() => {});
    }, PROGRESS_MS);
    this.#timer.unref();
    return true;
  }

  progressOf(id: string): number {
    return this.#running.find(id)?.row.progress ?? 0;
  }

  /** Writes the progress that is in memory only. */
  async flush(): Promise<void> {
    const rows = this.#running.takeUnwritten();
    try {
      while (rows.length > 0) {
        await this.#writeProgress(rows.slice(0, WRITTEN_AT_ONCE));
        rows.splice(0, WRITTEN_AT_ONCE);
        await shareLoop();
      }
    } catch (error) {
      this.#running.putBack(rows);
      throw error;
    }
  }

  async #writeProgress(rows: readonly TaskRow[]): Promise<void> {
    await this.#db.transaction().execute(async trx => {
      for (const { id, progress, detail_json } of rows)
        await trx
          .updateTable('tasks')
          .set({ progress, detail_json })
          .where('id', '=', id)
          .where('status', '=', 'IN_PROGRESS')
          .execute();
    });
  }

  /** The rows with their entities and events. */
  async #complete(found: readonly TaskRow[]): Promise<TaskState[]> {
    const states: TaskState[] = [];
    for (const some of piecesOf(found)) states.push(...(await this.#completeSome(some)));
    return states;
  }

  async #completeSome(found: readonly TaskRow[]): Promise<TaskState[]> {
    const rows = found.map(row => this.#running.asItIs(row));
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
    const entitiesOf = Map.groupBy(entities, ({ task_id: id }) => id);
    const eventsOf = Map.groupBy(events, ({ task_id: id }) => id);
    return rows.map(row => ({
      row,
      userNumber: numbers.get(row.user_id) ?? 0,
      entities: (entitiesOf.get(row.id) ?? []).map(entity => ({
        id: entity.entity_id,
        class: entity.entity_class,
      })),
      events: (eventsOf.get(row.id) ?? []).map(event => event.id),
      result: parseResult(row),
    }));
  }

  /** The task as it is known here without asking the database; undefined unless it runs and was written since the start. */
  running(id: string): TaskState | undefined {
    return this.#running.find(id);
  }

  async find(id: string): Promise<TaskState | undefined> {
    const row = await this.#db.selectFrom('tasks').selectAll().where('id', '=', id).executeTakeFirst();
    if (row === undefined) return undefined;
    const [state] = await this.#complete([row]);
    return state;
  }

  async list(filter: TaskFilter): Promise<{ count: number; tasks: TaskState[] }> {
    const { count, rows } = await listTasks(this.#db, filter);
    return { count, tasks: await this.#complete(rows) };
  }

  /** All tasks without an outcome (of one node, when given), oldest first. */
  async unfinished(nodeId?: string): Promise<TaskState[]> {
    let query = this.#db
      .selectFrom('tasks')
      .selectAll()
      .where('status', 'in', ['IN_PROGRESS', 'LOST'])
      .orderBy('created');
    if (nodeId !== undefined) query = query.where('node_id', '=', nodeId);
    return this.#complete(await query.execute());
  }

  /** All parts of a multitask. */
  async parts(parent: string): Promise<TaskState[]> {
    return this.#complete(
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
    this.#running.endParts(parent);
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
    await this.flush();
    const rows = await this.#db
      .updateTable('tasks')
      .set({ status: 'LOST' })
      .where('node_id', '=', nodeId)
      .where('status', '=', 'IN_PROGRESS')
      .returning('id')
      .execute();
    for (const { id } of rows) this.#running.drop(id);
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
  counts(): Promise<Record<string, number>> {
    return countsByFirst(this.#db, 'tasks');
  }

  /** Deletes finished tasks older than this. @returns how many. */
  prune(before: Date): Promise<number> {
    return deleteRows(this.#db, 'tasks', rows =>
      rows
        .where('finished_time', '<', before.toISOString())
        .where('status', 'not in', ['IN_PROGRESS', 'LOST']),
    );
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
