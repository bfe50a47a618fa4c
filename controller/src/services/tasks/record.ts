/** The task record of the REST contract, made from its row. Pure. */
import { isErrorKey, VirtkeepError } from '@virtkeep/shared/errors';
import { roleAllows } from '@virtkeep/shared/permissions';
import type { Principal } from '../../auth/principal.ts';
import type { TaskRow } from '../../store/schema.ts';

export const TASK_STATUSES = ['IN_PROGRESS', 'SUCCESS', 'FAILED', 'CANCELED', 'LOST', 'PARTIAL'] as const;
export type TaskStatus = (typeof TASK_STATUSES)[number];

export interface TaskEntity {
  id: string;
  /** domain, file, data_pool, node, vdisk, … */
  class: string;
}

/** A step that a task came to. */
export interface TaskStep {
  phase: string;
  /** What was said in it last. */
  message: string;
  since: string;
}

export interface TaskDetail {
  phase: string;
  bytes_done: number;
  bytes_total: number;
  /** Bytes per second. */
  rate: number;
  message: string;
  /** In the order in which it came to them; the latest of very many. */
  steps: TaskStep[];
}

export interface TaskError {
  code: string;
  detail: string;
  msg_key: string;
}

export function taskError({ code, message, msgKey }: VirtkeepError): TaskError {
  return { code, detail: message, msg_key: msgKey };
}

/** Why a task failed; null when it did not. */
export function errorOfRow(row: Pick<TaskRow, 'error_json'>): TaskError | null {
  const kept = keptError(row);
  return kept && { code: kept.code, detail: kept.detail, msg_key: kept.msg_key };
}

/** The same as an error, with what its text was made of: what follows from a failure may go by that. */
export function failureOfRow(row: Pick<TaskRow, 'error_json'>): VirtkeepError | null {
  const kept = keptError(row);
  if (kept === null) return null;
  const failure = new VirtkeepError(isErrorKey(kept.msg_key) ? kept.msg_key : 'internal', kept.params);
  failure.message = kept.detail;
  return failure;
}

/** In a row; older ones have no params. */
export type KeptError = TaskError & { params?: Record<string, string> };

const keptError = ({ error_json }: Pick<TaskRow, 'error_json'>): KeptError | null =>
  error_json === null ? null : (JSON.parse(error_json) as KeptError);

export interface TaskRecord {
  id: string;
  verbose_name: string;
  name: string;
  status: TaskStatus;
  progress: number;
  created: string;
  executed: string;
  finished_time: string | null;
  error_message: string;
  error: TaskError | null;
  is_cancellable: boolean;
  is_multitask: boolean;
  parent: string | null;
  entities: Record<string, string>;
  nodes_list: string[];
  nodes_user_responses: unknown[];
  events: string[];
  user: { id: number; username: string };
  permissions: string[];
  detail: TaskDetail;
}

export const NO_DETAIL: TaskDetail = {
  phase: '',
  bytes_done: 0,
  bytes_total: 0,
  rate: 0,
  message: '',
  steps: [],
};
const MAX_STEPS = 30;

/** How far a task is, with what it tells now. @param before of a row: one of before steps were kept has none */
export function furtherDetail(
  before: Partial<TaskDetail>,
  told: Partial<TaskDetail> = {},
  now = new Date(),
): TaskDetail {
  const detail = { ...NO_DETAIL, ...before, ...told };
  const { phase, message, steps } = detail;
  const last = steps.at(-1);
  if (phase === '' || (last?.phase === phase && (message === '' || last.message === message))) return detail;
  const isSame = last?.phase === phase;
  const step = { phase, message, since: isSame ? last.since : now.toISOString() };
  return { ...detail, steps: [...(isSame ? steps.slice(0, -1) : steps), step].slice(-MAX_STEPS) };
}

/** True once the outcome stands and will never change; LOST is not final. */
export function isFinal(status: string): boolean {
  return status !== 'IN_PROGRESS' && status !== 'LOST';
}

/** What a task's record is made of. */
export interface RecordedTask {
  row: TaskRow;
  /** Number of the user who began it; 0 when there is no such user. */
  userNumber: number;
  entities: readonly TaskEntity[];
  events: readonly string[];
}

/** @param viewer whose permissions are told; null tells none. */
export function taskRecord(
  { row, userNumber, entities, events }: RecordedTask,
  viewer: Principal | null,
  now = new Date(),
): TaskRecord {
  const status = row.status as TaskStatus;
  const error = errorOfRow(row);
  return {
    id: row.id,
    verbose_name: row.verbose_name,
    name: row.name,
    status,
    progress: row.progress,
    created: row.created,
    executed: executedSeconds(row, now),
    finished_time: row.finished_time,
    error_message: error?.detail ?? '',
    error,
    is_cancellable: row.is_cancellable === 1,
    is_multitask: row.is_multitask === 1,
    parent: row.parent,
    entities: Object.fromEntries(entities.map(entity => [entity.id, entity.class])),
    nodes_list: row.node_id === null ? [] : [row.node_id],
    nodes_user_responses: [],
    events: [...events],
    user: { id: userNumber, username: row.username },
    permissions: [
      ...(mayCancel(row, viewer) ? ['cancel'] : []),
      ...(mayRelease(row, viewer) ? ['release_locks'] : []),
    ],
    detail: detailOf(row),
  };
}

/** Rows of before steps were kept have none. */
function detailOf({ detail_json }: TaskRow): TaskDetail {
  return { ...NO_DETAIL, ...(JSON.parse(detail_json) as Partial<TaskDetail>) };
}

/** Locks can be released by hand only where the node no longer reports the task. */
function locksHeld(row: TaskRow): boolean {
  return row.status !== 'LOST' || row.locks_released === 1;
}

/** One's own, or those of everybody. */
export function mayStop(row: TaskRow, viewer: Principal): boolean {
  const own = row.user_id === viewer.id && roleAllows(viewer.role, 'task.cancel');
  return own || roleAllows(viewer.role, 'task.cancel_any');
}

function mayCancel(row: TaskRow, viewer: Principal | null): boolean {
  if (viewer === null || !mayStop(row, viewer)) return false;
  return row.status === 'IN_PROGRESS' && row.is_cancellable === 1;
}

function mayRelease(row: TaskRow, viewer: Principal | null): boolean {
  return viewer !== null && !locksHeld(row) && roleAllows(viewer.role, 'task.release_locks');
}

/** Seconds it has run, as text; "0" at first. Tenths are enough for people. */
function executedSeconds(row: TaskRow, now: Date): string {
  const end = row.finished_time === null ? now : new Date(row.finished_time);
  const seconds = Math.max(0, end.getTime() - new Date(row.created).getTime()) / 1000;
  return String(Math.round(seconds * 10) / 10);
}
