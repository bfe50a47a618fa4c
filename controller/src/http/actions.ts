/**
 * Answers of long actions. With `?async=1` the task is answered at once (202); otherwise the answer waits for its end
 * and is the result record, or the task's error. A client that hangs up cancels nothing; after `sync_wait_s`, or when
 * the controller stops, waiting turns into the 202.
 */
import { hasKey, isErrorKey, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Services } from '../services/services.ts';
import type { TaskState } from '../services/tasks/tasks.ts';
import { principalOf } from './app.ts';

export interface LongAction {
  /**
   * Everything that may refuse the request and everything that changes something: checks, the task's row (under this
   * id), the start call. Not called again when the request's idempotency key already has its task; called twice where its node is away
   * just now, and what it does before there is a task stays nowhere.
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
  const hungUp = new AbortController();
  reply.raw.once('close', () => hungUp.abort());
  const signal = AbortSignal.any([hungUp.signal, services.draining]);
  const task = await startOnce(services, request, taskId => startOnNode(services, taskId, action, signal));
  request.taskId = task.row.id;
  if ((request.query as { async?: number }).async === 1) return accepted(services, request, reply, task);
  const ended = await services.tasks.waitFor(task.row.id, services.config.sync_wait_s * 1000, signal);
  if (ended.row.status === 'IN_PROGRESS') return accepted(services, request, reply, ended);
  return answerEnd(services, ended, action);
}

/** A node that is away for a moment is waited for: its agent was started anew, or this controller has just taken over. */
async function startOnNode(
  services: Services,
  taskId: string,
  { start }: LongAction,
  signal: AbortSignal,
): Promise<TaskState> {
  try {
    return await start(taskId);
  } catch (error) {
    if (!hasKey(error, 'node_unreachable') || (await services.tasks.find(taskId))) throw error;
    if (!(await services.nodeReturns(error.params.node_id ?? '', signal))) throw error;
    return start(taskId);
  }
}

async function startOnce(
  services: Services,
  request: FastifyRequest,
  start: LongAction['start'],
): Promise<TaskState> {
  const keyed = request.idempotent;
  if (keyed?.taskId == null) return start(newId());
  const task = (await taskOfKey(services, request)) ?? (await start(keyed.taskId));
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
