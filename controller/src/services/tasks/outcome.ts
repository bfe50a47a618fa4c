/** What a task's end means for its row and for the people who read of it. Pure. */
import { ERRORS, type VirtkeepError } from '@virtkeep/shared/errors';
import type { TaskRow } from '../../store/schema.ts';
import type { NewEvent } from '../journal/events.ts';
import { errorOfRow, type KeptError, type TaskDetail, type TaskEntity, taskError } from './record.ts';

/** `message` is of all of them what people should know beside it: what went otherwise than asked for, what was left behind. */
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
      // what it was about when it ended says a step
      message: outcome.message ?? '',
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

/** The event that tells of an outcome, with what people should know beside it. @param row as `finishedRow` made it */
export function taskEvent(row: TaskRow, entities: TaskEntity[]): NewEvent {
  const error = row.status === 'FAILED' ? errorOfRow(row)?.detail : undefined;
  const { message } = JSON.parse(row.detail_json) as TaskDetail;
  return {
    type: row.status === 'FAILED' ? 'error' : row.status === 'SUCCESS' && message === '' ? 'info' : 'warning',
    message: `${row.verbose_name} ${WORDS[row.status as keyof typeof WORDS]}`,
    detailMessage: [error, message].filter(Boolean).join(' '),
    user: row.username,
    taskId: row.id,
    entities,
  };
}

const WORDS = {
  SUCCESS: 'succeeded',
  PARTIAL: 'succeeded in part',
  FAILED: 'failed',
  CANCELED: 'was cancelled',
};
