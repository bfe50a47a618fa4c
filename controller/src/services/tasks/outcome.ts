/** What a task's end means for its row and for the people who read of it. Pure. */
import { ERRORS, type VirtkeepError } from '@virtkeep/shared/errors';
import type { TaskRow } from '../../store/schema.ts';
import type { NewEvent } from '../journal/events.ts';
import { errorOfRow, type KeptError, type TaskDetail, type TaskEntity, taskError } from './record.ts';

export type TaskSuccess = { status: 'SUCCESS' | 'PARTIAL'; result?: unknown; message?: string };

export type TaskOutcome =
  | TaskSuccess
  | { status: 'FAILED'; error: VirtkeepError; message?: string }
  | { status: 'CANCELED'; message?: string };

/** The row of a task that has this outcome now. */
export function finishedRow(row: TaskRow, outcome: TaskOutcome): TaskRow {
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
      message: outcome.message ?? detail.message,
    }),
  };
}

function outcomeError(outcome: TaskOutcome): KeptError | null {
  switch (outcome.status) {
    case 'FAILED':
      return { ...taskError(outcome.error), params: outcome.error.params };
    case 'CANCELED':
      return { code: ERRORS.canceled.code, detail: ERRORS.canceled.text, msg_key: 'canceled' };
    default:
      return null;
  }
}

/** The event that tells of an outcome. */
export function taskEvent(row: TaskRow, entities: TaskEntity[]): NewEvent {
  const error = errorOfRow(row);
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
