/**
 * Answers of long actions. With `?async=1` the task is answered as soon as it has begun (202); otherwise the answer waits for its end
 * and is the result record, or the task's error. A client that hangs up cancels nothing that has begun; after `sync_wait_s`, or when
 * the controller stops, waiting turns into the 202.
 */
import { isErrorKey, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Services } from '../services/services.ts';
import { NodeAway } from '../services/tasks/node-tasks.ts';
import type { TaskState } from '../services/tasks/tasks.ts';
import { principalOf } from './app.ts';
import { ASK_ANOTHER } from './errors.ts';

/** So long a request waits for a node that was there a moment ago; less than a client waits, or a proxy (60 s). */
const RETURN_WAIT_MS = 30_000;

export interface LongAction {
  /**
   * Everything that may refuse the request and everything that changes something: checks, the task's row (under this
   * id), the start call. Not called again when the request's idempotency key already has its task; called again when the node
   * was away before anything was changed.
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
  const task = await startOnce(services, request, action, hungUp.signal).catch((error: unknown) => {
    if (error instanceof NodeAway && services.draining.aborted) {
      reply.header(ASK_ANOTHER, '1');
      throw new VirtkeepError('draining');
    }
    throw error;
  });
  request.taskId = task.row.id;
  if ((request.query as { async?: number }).async === 1) return accepted(services, request, reply, task);
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
  hungUp: AbortSignal,
): Promise<TaskState> {
  const keyed = request.idempotent;
  const start = (taskId: string) => startWhenBack(services, () => action.start(taskId), hungUp);
  if (keyed?.taskId == null) return start(newId());
  const task = (await taskOfKey(services, request)) ?? (await start(keyed.taskId));
  keyed.release();
  return task;
}

/** A controller that has just taken over, or a network that failed for a moment, is no reason to tell people to try again. */
async function startWhenBack(
  { nodes, draining }: Services,
  start: () => Promise<TaskState>,
  hungUp: AbortSignal,
): Promise<TaskState> {
  let limit: AbortSignal | undefined;
  for (;;) {
    try {
      return await start();
    } catch (error) {
      if (!(error instanceof NodeAway)) throw error;
      limit ??= AbortSignal.any([hungUp, draining, AbortSignal.timeout(RETURN_WAIT_MS)]);
      const isBack = await nodes.untilBack(error.nodeId, limit);
      if (!isBack || limit.aborted) throw error;
    }
  }
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
