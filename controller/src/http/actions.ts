/**
 * Answers of long actions. With `?async=1` the task is answered at once (202); otherwise the answer waits for its end
 * and is the result record, or the task's error. A client that hangs up cancels nothing; after `sync_wait_s`, or when
 * the controller stops, waiting turns into the 202.
 */
import { isErrorKey, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Services } from '../services/services.ts';
import type { TaskState } from '../services/tasks/tasks.ts';
import { principalOf } from './app.ts';

export interface LongAction {
  /**
   * Everything that may refuse the request and everything that changes something: checks, the task's row (under this
   * id), the start call. Not called again when the request's idempotency key already has its task.
   */
  start: (taskId: string) => Promise<TaskState>;
  /** The record to answer once it succeeded; the task's own result when absent. */
  result?: (task: TaskState) => Promise<unknown>;
}

/**
 * Route config of a long action; spread into `config` beside `access`. Of one that only sometimes makes a task, too: what it does
 * before that must be left out when there is a `taskOfKey`.
 */
export const LONG_ACTION = { longAction: true } as const;

/** Runs a long action and gives its answer. The route's querystring is `AsyncQuery` (or has its field). */
export async function runTask(
  services: Services,
  request: FastifyRequest,
  reply: FastifyReply,
  action: LongAction,
): Promise<unknown> {
  const task = await startOnce(services, request, action);
  request.taskId = task.row.id;
  if ((request.query as { async?: number }).async === 1) return accepted(services, request, reply, task);
  const hungUp = new AbortController();
  reply.raw.once('close', () => hungUp.abort());
  const ended = await services.tasks.waitFor(
    task.row.id,
    services.config.sync_wait_s * 1000,
    AbortSignal.any([hungUp.signal, services.draining]),
  );
  if (ended.row.status === 'IN_PROGRESS') return accepted(services, request, reply, ended);
  return answerEnd(services, ended, action);
}

async function startOnce(
  services: Services,
  request: FastifyRequest,
  action: LongAction,
): Promise<TaskState> {
  const keyed = request.idempotent;
  if (keyed?.taskId == null) return action.start(newId());
  const task = (await taskOfKey(services, request)) ?? (await action.start(keyed.taskId));
  keyed.release();
  return task;
}

/** The task that an earlier request under the same idempotency key was given. */
export async function taskOfKey(
  services: Services,
  { idempotent }: FastifyRequest,
): Promise<TaskState | undefined> {
  return idempotent?.taskId == null ? undefined : services.tasks.find(idempotent.taskId);
}

async function answerEnd(services: Services, task: TaskState, action: LongAction): Promise<unknown> {
  switch (task.row.status) {
    case 'SUCCESS':
    case 'PARTIAL':
      return (await action.result?.(task)) ?? task.result ?? {};
    case 'FAILED':
      throw taskFailure(services, task);
    case 'CANCELED':
      throw new VirtkeepError('canceled');
    default:
      throw new VirtkeepError('outcome_unknown', { node: task.row.node_id ?? '' });
  }
}

function accepted(
  services: Services,
  request: FastifyRequest,
  reply: FastifyReply,
  task: TaskState,
): { entity: string; _task: object } {
  reply.code(202);
  return {
    entity: task.entities[0]?.id ?? task.row.id,
    _task: services.tasks.record(task, principalOf(request)),
  };
}

/** The task's error as it was told, with its text as it stands. */
function taskFailure(services: Services, task: TaskState): VirtkeepError {
  const error = services.tasks.record(task, null).error;
  if (error === null || !isErrorKey(error.msg_key)) return new VirtkeepError('internal', { request_id: '' });
  const failure = new VirtkeepError(error.msg_key);
  failure.message = error.detail;
  return failure;
}
