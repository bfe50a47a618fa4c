/**
 * Tasks: every long action, as its user sees it. A task's id is the operation id on its node, so a start call can be
 * repeated and an event of the node finds its task. A row is on disk (synchronous commit) before the start call leaves.
 *
 * States: IN_PROGRESS → SUCCESS | FAILED | CANCELED | PARTIAL, which stand for ever; IN_PROGRESS ⇄ LOST while the node
 * is gone. Everything that arrives for a task whose outcome stands is ignored, so late or repeated events do no harm.
 */
import { ERRORS, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Principal } from '../auth/principal.ts';
import type { Database, TaskRow } from '../store/schema.ts';
import type { ChangeFeed } from './changes.ts';
import type { EventService } from './events.ts';
import { listTasks, type TaskFilter } from './task-list.ts';
import {
  isFinal,
  NO_DETAIL,
  type TaskDetail,
  type TaskEntity,
  type TaskError,
  type TaskRecord,
  taskRecord,
} from './task-record.ts';

export interface NewTask {
  /** The operation id; chosen here when absent. */
  id?: string;
  /** Kind of action, e.g. "domain_backup". */
  name: string;
  /** For people, e.g. "Back up web-1". */
  verboseName: string;
  user: { id: string; username: string };
  /** The thing made or changed comes first. */
  entities: TaskEntity[];
  nodeId?: string | null;
  parent?: string | null;
  cancellable?: boolean;
  multitask?: boolean;
}

export interface TaskPatch {
  /** 0–100; never goes back. */
  progress?: number;
  detail?: Partial<TaskDetail>;
  verboseName?: string;
  cancellable?: boolean;
  /** Replaces the entities. */
  entities?: TaskEntity[];
  nodeId?: string;
}

export type TaskOutcome =
  | { status: 'SUCCESS' | 'PARTIAL'; result?: unknown; message?: string }
  | { status: 'FAILED'; error: VirtkeepError }
  | { status: 'CANCELED' };

/** A task with everything its services need; `record` is what users see. */
export interface TaskState {
  row: TaskRow;
  entities: TaskEntity[];
  events: string[];
  /** Result record, once it succeeded. */
  result: unknown;
}

/** Asks the node to stop the work; the outcome comes as an event of the node. */
export type Canceller = (task: TaskState) => Promise<void>;
/** Asks the nodes of these tasks what became of them and calls `update` or `finish`. */
export type Checker = (tasks: TaskState[]) => Promise<void>;

const MAX_CHECKED = 1000;

export class TaskService {
  readonly #db: Database;
  readonly #changes: ChangeFeed;
  readonly #events: EventService;
  readonly #waiters = new Map<string, Set<() => void>>();
  #canceller: Canceller = async task => {
    throw new VirtkeepError('not_cancellable', { id: task.row.id, status: task.row.status });
  };
  #checker: Checker = async () => {};

  constructor(db: Database, changes: ChangeFeed, events: EventService) {
    this.#db = db;
    this.#changes = changes;
    this.#events = events;
  }

  /** Set once at start by what talks to the nodes. */
  setCanceller(canceller: Canceller): void {
    this.#canceller = canceller;
  }

  setChecker(checker: Checker): void {
    this.#checker = checker;
  }

  /** Writes the task, durably, before it returns. */
  async create(task: NewTask): Promise<TaskState> {
    const row: TaskRow = {
      id: task.id ?? newId(),
      name: task.name,
      verbose_name: task.verboseName,
      status: 'IN_PROGRESS',
      progress: 0,
      created: new Date().toISOString(),
      finished_time: null,
      error_json: null,
      is_cancellable: task.cancellable === false ? 0 : 1,
      is_multitask: task.multitask === true ? 1 : 0,
      parent: task.parent ?? null,
      node_id: task.nodeId ?? null,
      user_id: task.user.id,
      username: task.user.username,
      detail_json: JSON.stringify(NO_DETAIL),
      result_json: null,
      cancel_requested: 0,
      locks_released: 0,
    };
    await this.#db.transaction().execute(async trx => {
      await trx.insertInto('tasks').values(row).execute();
      const rows = entityRows(row.id, task.entities);
      if (rows.length > 0) await trx.insertInto('task_entities').values(rows).execute();
    });
    const state = { row, entities: task.entities, events: [], result: null };
    this.#publish(state, 'created');
    return state;
  }

  /** Progress and what became known later. A LOST task that is heard of is IN_PROGRESS again. */
  async update(id: string, patch: TaskPatch): Promise<void> {
    const state = await this.find(id);
    if (state === undefined || isFinal(state.row.status)) return;
    const detail = { ...(JSON.parse(state.row.detail_json) as TaskDetail), ...patch.detail };
    const row: TaskRow = {
      ...state.row,
      status: 'IN_PROGRESS',
      progress: Math.max(state.row.progress, clampProgress(patch.progress ?? 0)),
      detail_json: JSON.stringify(detail),
      verbose_name: patch.verboseName ?? state.row.verbose_name,
      is_cancellable: patch.cancellable === undefined ? state.row.is_cancellable : Number(patch.cancellable),
      node_id: patch.nodeId ?? state.row.node_id,
    };
    await this.#write(row, patch.entities);
    this.#publish({ ...state, row, entities: patch.entities ?? state.entities }, 'changed');
  }

  /** Gives a task its outcome; a second outcome is ignored. Also writes the event that tells of it. */
  async finish(id: string, outcome: TaskOutcome): Promise<void> {
    const state = await this.find(id);
    if (state === undefined || isFinal(state.row.status)) return;
    const row = finishedRow(state.row, outcome);
    await this.#write(row);
    await this.#events.record(taskEvent(row, state.entities));
    this.#publish({ ...state, row, result: parseResult(row) }, 'changed');
    this.#wake(id);
  }

  /** The node is gone: its running tasks' outcome is unknown until it returns. */
  async markLost(nodeId: string): Promise<string[]> {
    const rows = await this.#db
      .updateTable('tasks')
      .set({ status: 'LOST' })
      .where('node_id', '=', nodeId)
      .where('status', '=', 'IN_PROGRESS')
      .returning('id')
      .execute();
    for (const { id } of rows) {
      const state = await this.find(id);
      if (state !== undefined) this.#publish(state, 'changed');
      this.#wake(id);
    }
    return rows.map(row => row.id);
  }

  async find(id: string): Promise<TaskState | undefined> {
    const row = await this.#db.selectFrom('tasks').selectAll().where('id', '=', id).executeTakeFirst();
    if (row === undefined) return undefined;
    const [state] = await this.#complete([row]);
    return state;
  }

  /** @throws task_not_found. */
  async get(id: string): Promise<TaskState> {
    const state = await this.find(id);
    if (state === undefined) throw new VirtkeepError('task_not_found', { id });
    return state;
  }

  record(state: TaskState, viewer: Principal | null): TaskRecord {
    return taskRecord(state.row, state.entities, state.events, viewer);
  }

  async list(filter: TaskFilter): Promise<{ count: number; tasks: TaskState[] }> {
    const { count, rows } = await listTasks(this.#db, filter);
    return { count, tasks: await this.#complete(rows) };
  }

  /** All tasks without an outcome (of one node, when given), oldest first: what to re-attach after a start. */
  async unfinished(nodeId?: string): Promise<TaskState[]> {
    let query = this.#db
      .selectFrom('tasks')
      .selectAll()
      .where('status', 'in', ['IN_PROGRESS', 'LOST'])
      .orderBy('created');
    if (nodeId !== undefined) query = query.where('node_id', '=', nodeId);
    return this.#complete(await query.execute());
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

  /**
   * Waits for an outcome; also ends when the task is LOST, the time is over or the signal fires.
   * @returns the task as it is then; look at its status.
   */
  async waitFor(id: string, timeoutMs: number, signal?: AbortSignal): Promise<TaskState> {
    const state = await this.#waitOnce(id, timeoutMs, signal);
    return state ?? this.get(id);
  }

  /**
   * Asks for the end of a task. @throws task_not_found; not_cancellable when it has ended or cannot be stopped.
   */
  async cancel(id: string): Promise<TaskState> {
    const state = await this.get(id);
    if (state.row.status !== 'IN_PROGRESS' || state.row.is_cancellable === 0) {
      throw new VirtkeepError('not_cancellable', { id, status: state.row.status });
    }
    await this.#db.updateTable('tasks').set({ cancel_requested: 1 }).where('id', '=', id).execute();
    if (state.row.is_multitask === 1) await this.#cancelParts(id);
    await this.#canceller(state);
    return this.get(id);
  }

  /**
   * Gives up a LOST task: it fails as `outcome_unknown` and what it had locked is free.
   * @throws not_cancellable for any other state: a node that answers keeps its locks itself.
   */
  async releaseLocks(id: string): Promise<TaskState> {
    const state = await this.get(id);
    if (state.row.status !== 'LOST')
      throw new VirtkeepError('not_cancellable', { id, status: state.row.status });
    await this.#db.updateTable('tasks').set({ locks_released: 1 }).where('id', '=', id).execute();
    await this.finish(id, {
      status: 'FAILED',
      error: new VirtkeepError('outcome_unknown', { node: state.row.node_id ?? '' }),
    });
    return this.get(id);
  }

  /** Asks the nodes about everything unfinished. @returns how many were asked about and how many changed. */
  async check(): Promise<{ checked: number; changed: number }> {
    const before = (await this.unfinished()).slice(0, MAX_CHECKED);
    await this.#checker(before);
    let changed = 0;
    for (const { row } of before) {
      const now = await this.find(row.id);
      if (now?.row.status !== row.status) changed += 1;
    }
    return { checked: before.length, changed };
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

  async #cancelParts(parent: string): Promise<void> {
    const rows = await this.#db
      .selectFrom('tasks')
      .select('id')
      .where('parent', '=', parent)
      .where('status', '=', 'IN_PROGRESS')
      .where('is_cancellable', '=', 1)
      .execute();
    for (const { id } of rows) {
      // A part may end between the query and the call; its parent is cancelled all the same.
      await this.cancel(id).catch(() => {});
    }
  }

  async #waitOnce(id: string, timeoutMs: number, signal?: AbortSignal): Promise<TaskState | undefined> {
    const woken = Promise.withResolvers<void>();
    const timer = setTimeout(woken.resolve, timeoutMs);
    const waiters = this.#waiters.get(id) ?? new Set();
    this.#waiters.set(id, waiters.add(woken.resolve));
    signal?.addEventListener('abort', () => woken.resolve(), { once: true });
    try {
      // Read after registering, so that an end in between is not missed.
      const state = await this.get(id);
      if (state.row.status !== 'IN_PROGRESS' || signal?.aborted) return state;
      await woken.promise;
      return undefined;
    } finally {
      clearTimeout(timer);
      waiters.delete(woken.resolve);
      if (waiters.size === 0) this.#waiters.delete(id);
    }
  }

  #wake(id: string): void {
    for (const wake of this.#waiters.get(id) ?? []) wake();
  }

  async #write(row: TaskRow, entities?: TaskEntity[]): Promise<void> {
    const { id, ...columns } = row;
    await this.#db.transaction().execute(async trx => {
      await trx.updateTable('tasks').set(columns).where('id', '=', id).execute();
      if (entities === undefined) return;
      await trx.deleteFrom('task_entities').where('task_id', '=', id).execute();
      const rows = entityRows(id, entities);
      if (rows.length > 0) await trx.insertInto('task_entities').values(rows).execute();
    });
  }

  async #complete(rows: TaskRow[]): Promise<TaskState[]> {
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
    return rows.map(row => ({
      row,
      entities: entities
        .filter(entity => entity.task_id === row.id)
        .map(entity => ({ id: entity.entity_id, class: entity.entity_class })),
      events: events.filter(event => event.task_id === row.id).map(event => event.id),
      result: parseResult(row),
    }));
  }

  #publish(state: TaskState, action: 'created' | 'changed'): void {
    this.#changes.publish({
      kind: 'task',
      entityId: state.row.id,
      action,
      render: viewer => this.record(state, viewer),
    });
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

function finishedRow(row: TaskRow, outcome: TaskOutcome): TaskRow {
  const detail = JSON.parse(row.detail_json) as TaskDetail;
  const succeeded = outcome.status === 'SUCCESS' || outcome.status === 'PARTIAL';
  const error = outcomeError(outcome);
  return {
    ...row,
    status: outcome.status,
    progress: succeeded ? 100 : row.progress,
    finished_time: new Date().toISOString(),
    is_cancellable: 0,
    error_json: error === null ? null : JSON.stringify(error),
    result_json: succeeded && outcome.result !== undefined ? JSON.stringify(outcome.result) : null,
    detail_json: JSON.stringify({
      ...detail,
      rate: 0,
      message: (succeeded ? outcome.message : undefined) ?? detail.message,
    }),
  };
}

function outcomeError(outcome: TaskOutcome): TaskError | null {
  switch (outcome.status) {
    case 'FAILED':
      return { code: outcome.error.code, detail: outcome.error.message, msg_key: outcome.error.msgKey };
    case 'CANCELED':
      return { code: ERRORS.canceled.code, detail: ERRORS.canceled.text, msg_key: 'canceled' };
    default:
      return null;
  }
}

function parseResult(row: TaskRow): unknown {
  return row.result_json === null ? null : JSON.parse(row.result_json);
}

function clampProgress(value: number): number {
  return Math.min(100, Math.max(0, Math.trunc(value)));
}

function taskEvent(row: TaskRow, entities: TaskEntity[]) {
  const error = row.error_json === null ? null : (JSON.parse(row.error_json) as TaskError);
  const words = {
    SUCCESS: 'succeeded',
    PARTIAL: 'succeeded in part',
    FAILED: 'failed',
    CANCELED: 'was cancelled',
  };
  return {
    type:
      row.status === 'FAILED'
        ? ('error' as const)
        : row.status === 'SUCCESS'
          ? ('info' as const)
          : ('warning' as const),
    message: `${row.verbose_name} ${words[row.status as keyof typeof words]}`,
    detailMessage: row.status === 'FAILED' ? (error?.detail ?? '') : '',
    user: row.username,
    taskId: row.id,
    entities,
  };
}
