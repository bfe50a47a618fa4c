/**
 * One task of many parts: each part is a task of its own, which carries the larger one as `parent`. The larger one ends when all parts
 * have an outcome, also after a restart in between; what had not begun by then is told as interrupted.
 */
import { isVirtkeepError, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { mapLimited } from '@virtkeep/shared/limit';
import type { Logger } from '@virtkeep/shared/log';
import type { Actor } from '../../auth/principal.ts';
import {
  errorOfRow,
  isFinal,
  type TaskEntity,
  type TaskError,
  type TaskStatus,
  taskError,
} from './record.ts';
import type { TaskOutcome, TaskService, TaskState } from './tasks.ts';

export interface Part {
  entity: TaskEntity;
  /** Starts the task with this id as one of this user. */
  begin: (user: Actor, taskId: string) => Promise<unknown>;
}

export interface MultiAction {
  taskId: string;
  name: string;
  verboseName: string;
  user: Actor;
  parts: readonly Part[];
}

/** What became of one part. */
export interface PartRecord {
  entity: string;
  /** Null when it was refused before it was a task. */
  task: string | null;
  status: TaskStatus;
  error: TaskError | null;
}

const BEGUN_AT_ONCE = 4;

export class MultiTasks {
  readonly #tasks: TaskService;
  readonly #log: Logger;
  /** Why parts were not begun, by entity, of what is being begun by this run of the controller. */
  readonly #refusals = new Map<string, Map<string, TaskError>>();
  readonly #beginning = new Set<string>();
  /** Those that somebody else looks after, by the name of the task. */
  readonly #others = new Map<string, (taskId: string) => Promise<void>>();

  constructor(tasks: TaskService, log: Logger) {
    this.#tasks = tasks;
    this.#log = log;
    tasks.setPartListener(parent => this.#lookSafely(parent));
  }

  /** Tasks of this name have parts that come and go: who begins them says when the whole has ended. */
  leaveTo(name: string, look: (taskId: string) => Promise<void>): void {
    this.#others.set(name, look);
  }

  /** The task is on disk when it returns; its parts begin after that. */
  async start({ taskId, parts, ...action }: MultiAction): Promise<TaskState> {
    this.#beginning.add(taskId);
    this.#refusals.set(taskId, new Map());
    const entities = parts.map(({ entity }) => entity);
    const task = await this.#tasks.create({ ...action, id: taskId, entities, multitask: true });
    void this.#begin(taskId, action.user, parts);
    return task;
  }

  /**
   * After a restart: what was under way may have ended meanwhile, and what had not begun never will. Now and then besides, for what
   * could not be written when the last part ended.
   */
  async resume(): Promise<void> {
    for (const { row } of await this.#tasks.unfinished()) {
      if (row.is_multitask === 0) continue;
      if (row.cancel_requested === 1) await this.#tasks.cancelParts(row.id);
      await this.#lookSafely(row.id);
    }
  }

  async #begin(taskId: string, user: Actor, parts: readonly Part[]): Promise<void> {
    await mapLimited(parts, BEGUN_AT_ONCE, part => this.#beginPart(taskId, user, part));
    this.#beginning.delete(taskId);
    await this.#lookSafely(taskId);
  }

  async #beginPart(parent: string, user: Actor, { entity, begin }: Part): Promise<void> {
    try {
      const { row } = await this.#tasks.get(parent);
      if (row.cancel_requested === 1) throw new VirtkeepError('canceled');
      await begin({ id: user.id, username: user.username, parent }, newId());
    } catch (error) {
      const failure = isVirtkeepError(error) ? error : new VirtkeepError('internal', { request_id: parent });
      if (failure !== error) this.#log.error('could not begin a part', { task: parent, error });
      this.#refusals.get(parent)?.set(entity.id, taskError(failure));
    }
  }

  async #lookSafely(taskId: string): Promise<void> {
    try {
      await this.#look(taskId);
    } catch (error) {
      this.#log.error('could not look after a task of many parts', { task: taskId, error });
    }
  }

  async #look(taskId: string): Promise<void> {
    const task = await this.#tasks.find(taskId);
    if (task === undefined) return;
    const other = this.#others.get(task.row.name);
    // what it looks after may go on though the task has ended
    if (other) return other(taskId);
    if (isFinal(task.row.status)) return;
    const parts = await this.#tasks.parts(taskId);
    const ended = parts.filter(({ row }) => isFinal(row.status)).length;
    const progress = Math.trunc((100 * ended) / Math.max(1, task.entities.length));
    if (this.#beginning.has(taskId) || ended < parts.length) return this.#tasks.update(taskId, { progress });
    const refusals = this.#refusals.get(taskId) ?? new Map<string, TaskError>();
    const records = task.entities.map(({ id }) => partRecord(id, parts, refusals));
    await this.#tasks.finish(taskId, outcomeOf(records, task.row.cancel_requested === 1));
    this.#refusals.delete(taskId);
  }
}

function partRecord(
  entity: string,
  parts: readonly TaskState[],
  refusals: ReadonlyMap<string, TaskError>,
): PartRecord {
  const part = parts.find(({ entities }) => entities.some(({ id }) => id === entity));
  if (part !== undefined) {
    const { row } = part;
    return { entity, task: row.id, status: row.status as TaskStatus, error: errorOfRow(row) };
  }
  const error = refusals.get(entity) ?? taskError(new VirtkeepError('interrupted'));
  return { entity, task: null, status: error.msg_key === 'canceled' ? 'CANCELED' : 'FAILED', error };
}

function outcomeOf(parts: readonly PartRecord[], canceled: boolean): TaskOutcome {
  const good = parts.filter(({ status }) => status === 'SUCCESS' || status === 'PARTIAL');
  if (good.length > 0)
    return { status: good.length === parts.length ? 'SUCCESS' : 'PARTIAL', result: { parts } };
  if (canceled) return { status: 'CANCELED' };
  const reason = parts.find(({ error }) => error !== null)?.error?.detail ?? '';
  return { status: 'FAILED', error: new VirtkeepError('parts_failed', { count: parts.length, reason }) };
}
