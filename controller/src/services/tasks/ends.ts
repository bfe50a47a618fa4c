/**
 * What the controller does at the end of an operation. Each service registers the actions that it starts when it is created. So one
 * file has all of an action: the checks before it, the call, and what is done with the result. It holds for every operation of that
 * kind, whoever started it.
 */
import type { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { TaskEntity } from './record.ts';
import type { TaskOutcome, TaskState } from './tasks.ts';

export interface EndedOperation {
  nodeId: string;
  operation: Operation;
  /** Absent when the operation was not started here. */
  task: TaskState | undefined;
  /** Names what the task is about, when that is known only now; without a task nothing. */
  nameEntities(entities: TaskEntity[]): Promise<void>;
}

/** @returns the task's result record; undefined leaves the node's own. */
export type Done = (ended: EndedOperation) => Promise<unknown>;

/** Sets right what belongs to a task that failed, was cancelled, or is unknown to the node. */
export type Failed = (task: TaskState) => Promise<void>;

/**
 * What still belongs to a task on another node when its own operation has ended; the task ends when this does, with the
 * outcome that it tells. Repeatable: a restart in between begins it again. Undefined: nothing.
 */
export type FollowUp = (task: TaskState, outcome: TaskOutcome) => Promise<TaskOutcome> | undefined;

export class OperationEnds {
  readonly #done = new Map<string, Done>();
  readonly #failed: Failed[] = [];
  readonly #followUps = new Map<string, FollowUp>();

  /** @param done by the kind of the operation; each kind is one service's */
  succeeded(done: Record<string, Done>): void {
    addAll(this.#done, done);
  }

  failed(failed: Failed): void {
    this.#failed.push(failed);
  }

  /** @param followUps by the task's name */
  followUp(followUps: Record<string, FollowUp>): void {
    addAll(this.#followUps, followUps);
  }

  async takeResult(ended: EndedOperation): Promise<unknown> {
    return this.#done.get(ended.operation.kind)?.(ended);
  }

  async clearUp(task: TaskState): Promise<void> {
    for (const failed of this.#failed) await failed(task);
  }

  restOf(task: TaskState, outcome: TaskOutcome): Promise<TaskOutcome> | undefined {
    return this.#followUps.get(task.row.name)?.(task, outcome);
  }
}

function addAll<T>(target: Map<string, T>, more: Record<string, T>): void {
  for (const [key, value] of Object.entries(more)) {
    if (target.has(key)) throw new Error(`two services take the end of ${key}`);
    target.set(key, value);
  }
}

/** The id of the first thing of that class that an operation is about; empty when it names none. */
export function entityOf(operation: Operation, entityClass: EntityClass): string {
  return operation.entities.find(entity => entity.entityClass === entityClass)?.id ?? '';
}
