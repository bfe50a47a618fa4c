/** Operations of a node: how a start call is repeated, how its end is waited for and read. */
import { sleep } from '@virtkeep/shared/abort';
import { hasKey, isVirtkeepError, VirtkeepError } from '@virtkeep/shared/errors';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { fromErrorMessage } from '@virtkeep/shared/grpc-status';
import type { Logger } from '@virtkeep/shared/log';
import type { AgentClients } from '../../agents/clients.ts';
import type { NodeClocks } from '../inventory/node-clocks.ts';
import type { TaskOutcome, TaskPatch } from './tasks.ts';

export const START_ATTEMPTS = 3;
export const START_TIMEOUT_MS = 15_000;
export const START_PAUSE_MS = 300;
/** Longest wait for the end of an operation that is a part of a task. */
const PART_TIMEOUT_MS = 600_000;

/** The node on which a part of a task runs. */
export interface PartNode {
  id: string;
  clients: AgentClients;
  clocks: NodeClocks;
}

/**
 * Runs an operation that is a part of a task, to its end; then the inventory shows it.
 * @param id chosen by the caller; the start call may be sent more than once with it.
 * @returns the operation, which has succeeded
 * @throws what the node refuses or fails with; node_unreachable when it goes away meanwhile; timed_out after 10 min.
 */
export async function runOperation(
  node: PartNode,
  id: string,
  send: (operationId: string, signal: AbortSignal) => Promise<Operation>,
): Promise<Operation> {
  const limit = AbortSignal.timeout(PART_TIMEOUT_MS);
  const operation = await waitForEnd(node.clients, await startRepeatedly(id, send), limit).catch(error => {
    throw limit.aborted
      ? new VirtkeepError('timed_out', waitedFor(PART_TIMEOUT_MS), { cause: error })
      : error;
  });
  await node.clocks.seen(node.id, operation);
  if (operation.state !== OperationState.SUCCEEDED) throw errorOf(operation);
  return operation;
}

async function startRepeatedly(
  id: string,
  send: (operationId: string, signal: AbortSignal) => Promise<Operation>,
): Promise<Operation> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await send(id, AbortSignal.timeout(START_TIMEOUT_MS));
    } catch (error) {
      if (!isUncertain(error) || attempt === START_ATTEMPTS) throw error;
      await sleep(START_PAUSE_MS);
    }
  }
}

async function waitForEnd(
  clients: AgentClients,
  started: Operation,
  signal: AbortSignal,
): Promise<Operation> {
  let last = started;
  if (last.state !== OperationState.RUNNING) return last;
  const request = { operationId: started.id, afterSequence: started.sequence };
  for await (const { operation } of clients.operations.watch(request, { signal })) {
    if (operation?.id === started.id) last = operation;
    if (last.state !== OperationState.RUNNING) return last;
  }
  return clients.operations.get({ id: started.id }, { signal });
}

function waitedFor(timeMs: number) {
  return { operation: 'The operation on the node', seconds: timeMs / 1000 };
}

/** Errors after which it is not known whether the node took the call. */
export function isUncertain(error: unknown): boolean {
  const aborted =
    typeof error === 'object' && error !== null && 'name' in error && error.name === 'AbortError';
  return aborted || hasKey(error, 'node_unreachable', 'timed_out', 'canceled');
}

/** Why an operation failed or was cancelled. */
export function errorOf(operation: Operation): VirtkeepError {
  return operation.error
    ? fromErrorMessage(operation.error)
    : new VirtkeepError('internal', { request_id: operation.id });
}

/** The end of a task whose operation failed or was cancelled, with what it left, as its warnings tell. */
export function failureOf(operation: Operation): TaskOutcome {
  const left = operation.warnings.length > 0 ? { message: operation.warnings.join(' ') } : {};
  if (operation.state === OperationState.CANCELED) return { status: 'CANCELED', ...left };
  return { status: 'FAILED', error: errorOf(operation), ...left };
}

/** What a task tells of its running operation. */
export function progressOf(operation: Operation): TaskPatch {
  const { phase = '', bytesDone = 0n, bytesTotal = 0n, rate = 0n, message = '' } = operation.progress ?? {};
  return {
    progress: percent(bytesDone, bytesTotal),
    cancellable: operation.cancellable,
    detail: {
      phase,
      bytes_done: Number(bytesDone),
      bytes_total: Number(bytesTotal),
      rate: Number(rate),
      message,
    },
  };
}

function percent(done: bigint, total: bigint): number {
  return total === 0n ? 0 : Math.min(99, Number((done * 100n) / total));
}

/** The end of a task that is work of the controller itself; what is not in the error table is logged. */
export async function outcomeOf(
  taskId: string,
  work: () => Promise<unknown>,
  log: Logger,
): Promise<TaskOutcome> {
  try {
    return { status: 'SUCCESS', result: await work() };
  } catch (error) {
    if (isVirtkeepError(error)) return { status: 'FAILED', error };
    log.error('task failed', { task: taskId, error });
    return { status: 'FAILED', error: new VirtkeepError('internal', { request_id: taskId }) };
  }
}
