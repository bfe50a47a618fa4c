/**
 * Tasks: every long action, as its user sees it. A task's id is the operation id on its node, so a start call can be
 * repeated and an event of the node finds its task. A row is on disk (synchronous commit) before the start call leaves.
 *
 * States: IN_PROGRESS → SUCCESS | FAILED | CANCELED | PARTIAL, which stand for ever; IN_PROGRESS ⇄ LOST while the node
 * is gone. Everything that arrives for a task whose outcome stands is ignored, so late or repeated events do no harm.
 */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import { mapLimited } from '@virtkeep/shared/limit';
import { type Principal, requirePermission } from '../../auth/principal.ts';
import type { Database, TaskRow } from '../../store/schema.ts';
import type { ChangeFeed } from '../journal/changes.ts';
import type { EventService } from '../journal/events.ts';
import type { TaskFilter } from './list.ts';
import { finishedRow, type TaskOutcome, type TaskSuccess, taskEvent } from './outcome.ts';
import {
  furtherDetail,
  isFinal,
  mayStop,
  NO_DETAIL,
  type TaskDetail,
  type TaskEntity,
  type TaskRecord,
  taskRecord,
} from './record.ts';
import { parseResult, type TaskState, TaskStore } from './store.ts';
import { untilStored } from './until-stored.ts';

export type { TaskOutcome, TaskState, TaskSuccess };

export interface NewTask {
  /** The operation id; chosen here when absent. */
  id?: string;
  /** Kind of action, e.g. "domain_backup". */
  name: string;
  /** For people, e.g. "Back up web-1". */
  verboseName: string;
  user: { id: string; username: string; parent?: string };
  /** The thing made or changed comes first. */
  entities: TaskEntity[];
  nodeId?: string | null;
  parent?: string | null;
  cancellable?: boolean;
  multitask?: boolean;
  /** It is a backup that leaves out disks on request. */
  leavesOut?: boolean;
  /** Who makes it looks for it again, and goes on with it though the answer to its writing was lost; any other is ended then. */
  adopted?: boolean;
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
  /** One that is LOST stays so; by default it is IN_PROGRESS again. */
  staysLost?: boolean;
}

/**
 * Asks the node to stop the work; the outcome comes as an event of the node. A node that cannot be asked now is asked
 * when it tells of the task next, as long as `cancel_requested` stands.
 */
export type Canceller = (task: TaskState) => Promise<void>;
/** Lets go of what a task holds that is given up; idempotent. */
export type Releaser = (taskId: string) => Promise<void>;
/** Hears that a part of this task has an outcome, or that it is asked for. */
export type PartListener = (parent: string) => Promise<void>;
/** Hears of each task that has an outcome, before those who wait for it. */
export type EndListener = (task: TaskState) => Promise<unknown>;
/** Asks the nodes of these tasks what became of them and calls `update` or `finish`. */
export type Checker = (tasks: TaskState[]) => Promise<void>;

const MAX_CHECKED = 1000;
const PART_REQUESTS_AT_ONCE = 8;

export class TaskService {
  readonly #store: TaskStore;
  readonly #changes: ChangeFeed;
  readonly #events: EventService;
  /** A task is read and written by one at a time: late progress must not take an outcome back. */
  readonly #turns = new KeyedQueue();
  readonly #waiters = new Map<string, Set<() => void>>();
  #canceller: Canceller = async task => {
    throw new VirtkeepError('not_cancellable', { id: task.row.id, status: task.row.status });
  };
  #checker: Checker = async () => {};
  #releaser: Releaser = async () => {};
  #partListener: PartListener = async () => {};
  readonly #endListeners: EndListener[] = [];

  constructor(db: Database, changes: ChangeFeed, events: EventService) {
    this.#store = new TaskStore(db);
    this.#changes = changes;
    this.#events = events;
  }

  /** Set once at start by what talks to the nodes. */
  setCanceller(canceller: Canceller): void {
    this.#canceller = canceller;
  }

  /** Set once at start by the owner of the files that tasks keep busy. */
  setReleaser(releaser: Releaser): void {
    this.#releaser = releaser;
  }

  /** Set once at start by what looks after tasks of many parts; hears of each part that has ended. */
  setPartListener(listener: PartListener): void {
    this.#partListener = listener;
  }

  /** Called at start by whatever is to hear of ends; what a listener throws is left to it. */
  onEnd(listener: EndListener): void {
    this.#endListeners.push(listener);
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
      parent: task.parent ?? task.user.parent ?? null,
      node_id: task.nodeId ?? null,
      user_id: task.user.id,
      username: task.user.username,
      detail_json: JSON.stringify(NO_DETAIL),
      result_json: null,
      cancel_requested: 0,
      locks_released: 0,
      noted: 0,
      leaves_out: task.leavesOut === true ? 1 : 0,
    };
    const state = await this.#store.insert(row, task.entities).catch(error => {
      if (hasKey(error, 'database_unavailable') && task.adopted !== true) this.#endUnbegun(row, error);
      throw error;
    });
    this.#publish(state, 'created');
    return state;
  }

  /**
   * Whether it was written when the connection broke nobody knows; it will not begin, and whoever asks again finds it ended. One that was
   * made again under its id has begun: that one is known to run. A part says what it failed for: who looks after the whole may begin it anew.
   */
  #endUnbegun({ id, parent }: TaskRow, reason: VirtkeepError): void {
    const error = parent === null ? new VirtkeepError('interrupted') : reason;
    const end = async () => {
      const task = await this.find(id);
      if (task?.row.status === 'IN_PROGRESS' && this.running(id) === undefined)
        await this.finish(id, { status: 'FAILED', error });
    };
    // what else may go wrong is told to who asks for tasks
    untilStored(end).catch(() => {});
  }

  /** Progress and what became known later. A LOST task that is heard of is IN_PROGRESS again, unless the patch says otherwise. */
  update(id: string, patch: TaskPatch): Promise<void> {
    return this.#turns.run(id, () => this.#update(id, patch));
  }

  async #update(id: string, patch: TaskPatch): Promise<void> {
    const state = this.#store.running(id) ?? (await this.find(id));
    if (state === undefined || isFinal(state.row.status)) return;
    const detail = furtherDetail(JSON.parse(state.row.detail_json) as Partial<TaskDetail>, patch.detail);
    const row: TaskRow = {
      ...state.row,
      status: patch.staysLost ? state.row.status : 'IN_PROGRESS',
      progress: Math.max(state.row.progress, clampProgress(patch.progress ?? 0)),
      detail_json: JSON.stringify(detail),
      verbose_name: patch.verboseName ?? state.row.verbose_name,
      is_cancellable: patch.cancellable === undefined ? state.row.is_cancellable : Number(patch.cancellable),
      node_id: patch.nodeId ?? state.row.node_id,
    };
    const changed = { ...state, row, entities: patch.entities ?? state.entities };
    const isProgress = patch.entities === undefined && isOnlyFurther(state.row, row);
    if (!isProgress || !this.#store.progressed(changed)) await this.#store.write(changed, patch.entities);
    this.#publish(changed, 'changed');
  }

  /** How far a task is that runs, whether that is written yet or not; 0 of any other. */
  progressOf(id: string): number {
    return this.#store.progressOf(id);
  }

  /** Writes the progress that is in memory only: at the end of the process. */
  flush(): Promise<void> {
    return this.#store.flush();
  }

  /** Gives a task its outcome; a second outcome is ignored. Also writes the event that tells of it. */
  finish(id: string, outcome: TaskOutcome): Promise<void> {
    return this.#turns.run(id, () => this.#finish(id, outcome));
  }

  async #finish(id: string, outcome: TaskOutcome): Promise<void> {
    const state = await this.find(id);
    if (state === undefined || isFinal(state.row.status)) return;
    const row = finishedRow(state.row, outcome);
    const ended = { ...state, row, result: parseResult(row) };
    await this.#store.write(ended);
    // the outcome stands, so nobody comes back: whatever fails, the others hear of it
    try {
      await this.#events.record(taskEvent(row, state.entities));
    } finally {
      await this.#tellEnd(ended);
    }
  }

  async #tellEnd(ended: TaskState): Promise<void> {
    const { id, parent } = ended.row;
    try {
      for (const listener of this.#endListeners) await listener(ended);
    } finally {
      this.#publish(ended, 'changed');
      this.#wake(id);
      if (parent !== null) await this.#partListener(parent);
    }
  }

  /** The node is gone: its running tasks' outcome is unknown until it returns. */
  async markLost(nodeId: string): Promise<string[]> {
    const ids = await this.#store.lose(nodeId);
    for (const id of ids) {
      const state = await this.find(id);
      if (state !== undefined) this.#publish(state, 'changed');
      this.#wake(id);
    }
    return ids;
  }

  find(id: string): Promise<TaskState | undefined> {
    return this.#store.find(id);
  }

  /** A task that runs, without asking the database: it tells several times a second how far it is. Undefined: ask for it. */
  running(id: string): TaskState | undefined {
    return this.#store.running(id);
  }

  /** Somebody asked for the end of a task; false as well where there is none. */
  isToEnd(id: string): Promise<boolean> {
    return this.#store.isToEnd(id);
  }

  /** What became of them is not known, since their node is gone: the node by the task's id. */
  lost(): Promise<Map<string, string>> {
    return this.#store.lost();
  }

  /** @throws task_not_found. */
  async get(id: string): Promise<TaskState> {
    const state = await this.find(id);
    if (state === undefined) throw new VirtkeepError('task_not_found', { id });
    return state;
  }

  /** Those of a task of many parts. */
  parts(parent: string): Promise<TaskState[]> {
    return this.#store.parts(parent);
  }

  record(state: TaskState, viewer: Principal | null): TaskRecord {
    return taskRecord(state, viewer);
  }

  list(filter: TaskFilter): Promise<{ count: number; tasks: TaskState[] }> {
    return this.#store.list(filter);
  }

  /** All tasks without an outcome (of one node, when given), oldest first: what to re-attach after a start. */
  unfinished(nodeId?: string): Promise<TaskState[]> {
    return this.#store.unfinished(nodeId);
  }

  /** Number of tasks by status. */
  counts(): Promise<Record<string, number>> {
    return this.#store.counts();
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
   * Asks for the end of a task. The wish stands on its row: a node that cannot be asked now is asked when it tells of the task next.
   * @throws task_not_found; permission_denied for a task of others; not_cancellable when it has ended or cannot be stopped.
   */
  async cancel(id: string, viewer: Principal): Promise<TaskState> {
    const state = await this.get(id);
    if (!mayStop(state.row, viewer)) requirePermission(viewer, 'task.cancel_any');
    return this.#cancel(state);
  }

  async #cancel(state: TaskState): Promise<TaskState> {
    const { id } = state.row;
    if (state.row.status !== 'IN_PROGRESS' || state.row.is_cancellable === 0) {
      throw new VirtkeepError('not_cancellable', { id, status: state.row.status });
    }
    await this.#store.set(id, { cancel_requested: 1 });
    if (state.row.is_multitask === 1) await this.cancelParts(id);
    try {
      await this.#canceller(state);
    } catch (error) {
      // who is told that it cannot be cancelled must not find it cancelled later
      await this.#store.set(id, { cancel_requested: state.row.cancel_requested });
      throw error;
    }
    // parts that wait to begin are nobody's tasks yet
    if (state.row.is_multitask === 1) await this.#partListener(id);
    return this.get(id);
  }

  /**
   * Gives up a LOST task: it fails as `outcome_unknown` and what it had locked is free.
   * @throws not_cancellable for any other state: a node that answers keeps its locks itself.
   */
  releaseLocks(id: string): Promise<TaskState> {
    // in its turn: its node may be back and tell of it just now
    return this.#turns.run(id, async () => {
      const { row } = await this.get(id);
      if (row.status !== 'LOST') throw new VirtkeepError('not_cancellable', { id, status: row.status });
      await this.#releaser(id);
      await this.#store.set(id, { locks_released: 1 });
      await this.#finish(id, {
        status: 'FAILED',
        error: new VirtkeepError('outcome_unknown', { node: row.node_id ?? '' }),
      });
      return this.get(id);
    });
  }

  /** Asks the nodes about everything unfinished. @returns how many were asked about and how many changed. */
  async check(): Promise<{ checked: number; changed: number }> {
    const before = (await this.unfinished()).slice(0, MAX_CHECKED);
    for (const { row } of before) if (row.is_multitask === 1) await this.#partListener(row.id);
    await this.#checker(before);
    let changed = 0;
    for (const { row } of before) {
      const now = await this.find(row.id);
      if (now?.row.status !== row.status) changed += 1;
    }
    return { checked: before.length, changed };
  }

  /** Deletes finished tasks older than this. @returns how many. */
  prune(before: Date): Promise<number> {
    return this.#store.prune(before);
  }

  /** The wish to end of a task of many parts, for all that have no outcome. */
  async cancelParts(parent: string): Promise<void> {
    await mapLimited(await this.#store.wishEndOfParts(parent), PART_REQUESTS_AT_ONCE, async id => {
      // A part that has ended meanwhile needs no cancel, and one past its point of no return has its end.
      await this.#canceller(await this.get(id)).catch(() => {});
    });
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

  #publish(state: TaskState, action: 'created' | 'changed'): void {
    this.#changes.publish({
      kind: 'task',
      entityId: state.row.id,
      action,
      render: viewer => this.record(state, viewer),
      sameFor: viewer => `${viewer.role} ${viewer.id === state.row.user_id}`,
    });
  }
}

/** Nothing else has changed. */
function isOnlyFurther(before: TaskRow, after: TaskRow): boolean {
  const fields = ['status', 'verbose_name', 'is_cancellable', 'node_id'] as const;
  return fields.every(field => before[field] === after[field]);
}

function clampProgress(value: number): number {
  return Math.min(100, Math.max(0, Math.trunc(value)));
}
