/**
 * Tasks that run on nodes. A task's id is its operation id: the row is on disk before the start call leaves, the start
 * call may be repeated, and what the node tells of the operation finds the task.
 *
 * A start call whose answer is lost is repeated a few times at once, because the user still waits for it. After that,
 * and after a restart of the controller, it is never sent again on the controller's own account: the node is asked
 * whether it knows the operation, and if not, the task fails with `operation_unknown` and the user decides.
 *
 * The wish to cancel stands on the task's row, and on those of its parts, also of parts that come into being later. A node that could not
 * hear it (its start call was under way, it was away, the task could not be cancelled yet) hears it when it next tells that the
 * operation runs and can be cancelled.
 */
import { sleep } from '@virtkeep/shared/abort';
import { hasKey, isVirtkeepError, VirtkeepError } from '@virtkeep/shared/errors';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { Logger } from '@virtkeep/shared/log';
import { resultJson } from '@virtkeep/shared/operation-result';
import type { AgentClients } from '../../agents/clients.ts';
import type { NodeLinks } from '../../agents/links.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { NodeClocks } from '../inventory/node-clocks.ts';
import { OperationEnds } from './ends.ts';
import {
  failureOf,
  isUncertain,
  outcomeOf,
  progressOf,
  START_ATTEMPTS,
  START_PAUSE_MS,
  START_TIMEOUT_MS,
} from './operation.ts';
import { isFinal, type TaskEntity } from './record.ts';
import type { NewTask, TaskOutcome, TaskService, TaskState } from './tasks.ts';

export interface NodeAction extends Omit<NewTask, 'nodeId' | 'id'> {
  taskId: string;
  nodeId: string;
  entities: TaskEntity[];
  /** What belongs to the task and must stand before the start call leaves; undone by what its service does when it has `failed`. */
  prepare?: () => Promise<void>;
  /** The start call; may be sent more than once with the same operation id. */
  send: (clients: AgentClients, operationId: string, signal: AbortSignal) => Promise<Operation>;
}

const ASK_TIMEOUT_MS = 10_000;
/** What could not be done is tried again after this, then after ever longer, up to the second, ms. */
const AGAIN_MS = 5_000;
const LONGEST_AGAIN_MS = 600_000;
/** A result is tried that often: later it may be of before others changed the file. What is busy with it is looked at when its node returns. */
const RESULT_TRIES = 3;

export interface NodeTasksDependencies {
  tasks: TaskService;
  links: NodeLinks;
  inventory: Inventory;
  clocks: NodeClocks;
  log: Logger;
  draining: AbortSignal;
}

/** `node_unreachable` before anything was done: what was asked for may be begun anew when the node is back. */
export class NodeAway extends VirtkeepError {
  readonly nodeId: string;

  constructor(nodeId: string, { params, cause }: VirtkeepError) {
    super('node_unreachable', params, { cause });
    this.nodeId = nodeId;
  }
}

export class NodeTasks {
  readonly #dependencies: NodeTasksDependencies;
  /** Tasks whose start call is under way; the node need not know them yet. */
  readonly #starting = new Set<string>();
  /**
   * Tasks whose start call was given up while their node was away, or was under way when it returned, and that node: until it is back and
   * the call has ended. What their operation did before is not told again.
   */
  readonly #unsettled = new Map<string, string>();
  /** Tasks whose operation has ended and that still have something to do on another node. */
  readonly #following = new Set<string>();
  /** Tasks whose node was asked to cancel them, since it was last connected. */
  readonly #stopping = new Set<string>();
  /** One word at a time on each operation: its stream, a check and a start call may speak at once. */
  readonly #turns = new KeyedQueue();
  /** What the services do when an operation ends; before the task's outcome is told. */
  readonly ends = new OperationEnds();
  #progressListener: (operation: Operation) => void = () => {};

  constructor(dependencies: NodeTasksDependencies) {
    this.#dependencies = dependencies;
    dependencies.tasks.setCanceller(task => this.#cancel(task));
    dependencies.tasks.setChecker(states => this.#checkAll(states));
  }

  /**
   * Starts an action on a node as a task.
   * @throws what the node answers to the start call (the task has failed with it then); before there is a task:
   * node_not_found, node_unreachable, node_in_service, draining.
   */
  async start(action: NodeAction): Promise<TaskState> {
    await this.#create(action);
    await this.#launch(action);
    return this.#dependencies.tasks.get(action.taskId);
  }

  /**
   * As `start`, but answers as soon as the task is on disk, since `prepare` may take its time; what is refused then is
   * the task's failure. It can be cancelled once its own operation runs.
   */
  async begin(action: NodeAction): Promise<TaskState> {
    const task = await this.#create({ ...action, cancellable: false });
    // A refusal stands in the task already.
    void this.#launch(action).catch(() => {});
    return task;
  }

  async #create(action: NodeAction): Promise<TaskState> {
    this.assertReady(action.nodeId);
    const { taskId, nodeId, prepare: _prepare, send: _send, ...task } = action;
    this.#starting.add(taskId);
    try {
      return await this.#dependencies.tasks.create({ ...task, id: taskId, nodeId });
    } catch (error) {
      this.#starting.delete(taskId);
      throw error;
    }
  }

  async #launch({ taskId, nodeId, prepare, send }: NodeAction): Promise<void> {
    try {
      await prepare?.().catch(error => this.#refused(taskId, error));
      await this.#send(taskId, nodeId, send);
    } catch (error) {
      // where its end could not be written it has none yet
      this.#checkLater(taskId);
      throw error;
    } finally {
      this.#starting.delete(taskId);
      if (this.#dependencies.links.isConnected(nodeId) && this.#unsettled.delete(taskId))
        this.#checkNow(taskId).catch(() => this.#checkLater(taskId));
    }
  }

  /** To be called before anything is changed. @throws node_not_found, node_unreachable (as {@link NodeAway}), node_in_service, draining. */
  assertReady(nodeId: string): void {
    if (this.#dependencies.draining.aborted) throw new VirtkeepError('draining');
    const { row } = this.#dependencies.inventory.node(nodeId);
    if (row.service_mode === 1) throw new VirtkeepError('node_in_service', { node: row.verbose_name });
    try {
      this.#dependencies.links.clients(nodeId);
    } catch (error) {
      throw hasKey(error, 'node_unreachable') ? new NodeAway(nodeId, error) : error;
    }
  }

  async #send(taskId: string, nodeId: string, send: NodeAction['send']): Promise<void> {
    for (let attempt = 1; attempt <= START_ATTEMPTS; attempt += 1) {
      const { row } = await this.#dependencies.tasks.get(taskId);
      if (isFinal(row.status) || row.cancel_requested === 1) {
        // one that has ended stays as it ended
        if (attempt === 1) return this.#endWithout(taskId, { status: 'CANCELED' });
        break;
      }
      try {
        const limit = AbortSignal.timeout(START_TIMEOUT_MS);
        return this.#begun(nodeId, await send(this.#dependencies.links.clients(nodeId), taskId, limit));
      } catch (error) {
        if (!isUncertain(error)) {
          // an attempt of before may still be on its way, and must not begin what has failed
          return attempt === 1 ? this.#refused(taskId, error) : this.#settle(taskId, nodeId, error);
        }
        this.#dependencies.log.warn('start call without an answer', {
          node: nodeId,
          task: taskId,
          attempt,
          error,
        });
        await sleep(START_PAUSE_MS);
      }
    }
    await this.#settle(taskId, nodeId);
  }

  async #refused(taskId: string, error: unknown): Promise<never> {
    const failure = isVirtkeepError(error)
      ? error
      : new VirtkeepError('internal', { request_id: taskId }, { cause: error });
    if (failure !== error) this.#dependencies.log.error('start call failed', { task: taskId, error });
    await this.#fail(taskId, failure);
    throw failure;
  }

  /** The node has it; what cannot be noted of that now is asked for later. */
  async #begun(nodeId: string, operation: Operation): Promise<void> {
    await this.apply(nodeId, operation).catch((error: unknown) => {
      this.#dependencies.log.warn('an answer was not noted', { task: operation.id, error });
      this.#checkLater(operation.id);
    });
  }

  /**
   * Answers of start calls were lost: asks the node, when it is there; else its return decides.
   * @param refusal why the last one was refused: why the task fails that the node does not know
   */
  async #settle(taskId: string, nodeId: string, refusal?: unknown): Promise<void> {
    if (!this.#dependencies.links.isConnected(nodeId)) {
      this.#unsettled.set(taskId, nodeId);
      return;
    }
    const task = await this.#dependencies.tasks.get(taskId);
    const clients = this.#dependencies.links.clients(nodeId);
    const isKnown = await this.#ask(task, clients).catch((error: unknown) => {
      this.#dependencies.log.warn('task left to the next check', { task: taskId, error });
      this.#checkLater(taskId);
      return true;
    });
    if (isKnown) return;
    if (refusal !== undefined) return this.#refused(taskId, refusal);
    await this.#failUnknown(task);
  }

  /** Whatever has become of a task whose start was not seen to its end. */
  #checkLater(taskId: string): void {
    this.#later(() => this.#checkNow(taskId));
  }

  async #checkNow(taskId: string): Promise<void> {
    const now = await this.#dependencies.tasks.find(taskId);
    if (now && !isFinal(now.row.status)) await this.#checkAll([now]);
  }

  /** Tries it after a while, again and again until it succeeds; not when the controller ends: its next start finds what is left. */
  #later(work: () => Promise<unknown>, tries = Number.POSITIVE_INFINITY, delayMs = AGAIN_MS): void {
    const { draining, log } = this.#dependencies;
    setTimeout(() => {
      if (draining.aborted) return;
      work().catch((error: unknown) => {
        log.warn('not done yet', { error, tries: tries - 1 });
        if (tries > 1) this.#later(work, tries - 1, Math.min(2 * delayMs, LONGEST_AGAIN_MS));
      });
    }, delayMs).unref();
  }

  /**
   * Takes the result of an operation over although its task has succeeded: that was not possible then.
   * @throws what the service does that takes it
   */
  takeOver(nodeId: string, operation: Operation): Promise<unknown> {
    return this.#turns.run(operation.id, async () =>
      this.#take(nodeId, operation, await this.#dependencies.tasks.find(operation.id)),
    );
  }

  /**
   * Takes over what a node says of an operation; anything not begun here (other services') only has its effects. An end is taken
   * over when the inventory shows it.
   * @param isBack the node is connected. What is LOST stays so until then: nobody would hear that a session ended before, and so nothing
   *   would make it LOST again.
   * @throws node_unreachable: the connection ended before
   */
  apply(nodeId: string, operation: Operation, isBack = true): Promise<void> {
    return this.#turns.run(operation.id, () => this.#applyNow(nodeId, operation, isBack));
  }

  async #applyNow(nodeId: string, operation: Operation, isBack: boolean): Promise<void> {
    const { tasks } = this.#dependencies;
    const running = operation.state === OperationState.RUNNING ? tasks.running(operation.id) : undefined;
    const task = running ?? (await tasks.find(operation.id));
    // ids of operations can be read in names of files in shared pools
    if (task && task.row.node_id !== nodeId) {
      this.#dependencies.log.warn("a node tells of another node's task", {
        node: nodeId,
        task: operation.id,
      });
      return;
    }
    const ended = task !== undefined && isFinal(task.row.status);
    // A task that was given up may still succeed on its node: what it made is there.
    if (ended && (task.row.status === 'SUCCESS' || operation.state === OperationState.RUNNING)) return;
    if (operation.state !== OperationState.RUNNING) await this.#dependencies.clocks.seen(nodeId, operation);
    switch (operation.state) {
      case OperationState.SUCCEEDED:
        return this.#succeeded(nodeId, operation, task, isBack);
      case OperationState.FAILED:
      case OperationState.CANCELED:
        if (task) await this.#failNow(task, failureOf(operation));
        return;
      case OperationState.RUNNING:
        if (task) await this.#goesOn(nodeId, operation, isBack);
        return;
      default:
        return;
    }
  }

  /** Reads the wish to cancel after the progress is written: it may have come while the task could not be cancelled. */
  async #goesOn(nodeId: string, operation: Operation, isBack: boolean): Promise<void> {
    const { id } = operation;
    await this.#progress(operation, isBack);
    if (!operation.cancellable || this.#stopping.has(id)) return;
    const { tasks } = this.#dependencies;
    const task = tasks.running(id) ?? (await tasks.find(id));
    if (task === undefined || task.row.cancel_requested === 0) return;
    // Its answer waits for its turn, which is this one's now.
    void this.#stop(id, nodeId).catch((error: unknown) =>
      this.#dependencies.log.warn('task not cancelled yet', { node: nodeId, task: id, error }),
    );
  }

  async #succeeded(
    nodeId: string,
    operation: Operation,
    task: TaskState | undefined,
    isBack: boolean,
  ): Promise<void> {
    const result = await this.#take(nodeId, operation, task).catch((error: unknown) => {
      this.#dependencies.log.error('could not take the result of an operation over', {
        operation: operation.id,
        error,
      });
      // what it was about is kept busy until then
      this.#later(() => this.takeOver(nodeId, operation), RESULT_TRIES);
      return undefined;
    });
    if (!task) return;
    if (operation.progress) await this.#progress(operation, isBack);
    const message = operation.warnings.join(' ');
    await this.#end(task, { status: 'SUCCESS', result: result ?? resultJson(operation), message });
  }

  #take(nodeId: string, operation: Operation, task: TaskState | undefined): Promise<unknown> {
    const nameEntities = async (entities: TaskEntity[]) => {
      // its end follows
      if (task) await this.#dependencies.tasks.update(operation.id, { entities, staysLost: true });
    };
    return this.ends.takeResult({ nodeId, operation, task, nameEntities });
  }

  /** Gives a task its outcome, or lets it go on with what follows its operation. */
  async #end(task: TaskState, outcome: TaskOutcome): Promise<void> {
    const { id } = task.row;
    this.#stopping.delete(id);
    if (this.#following.has(id)) return;
    const rest = this.ends.restOf(task, outcome);
    if (rest === undefined) return this.#dependencies.tasks.finish(id, outcome);
    this.#following.add(id);
    void rest
      .catch((error: unknown) => {
        this.#dependencies.log.error('could not do all that follows an operation', { task: id, error });
        return outcome;
      })
      .then(last => this.#finishSurely(id, last))
      .finally(() => this.#following.delete(id));
  }

  /** Gives a task its outcome where nobody would hear that it cannot be written; then it is tried again. Never throws. */
  async #finishSurely(id: string, outcome: TaskOutcome): Promise<void> {
    const finish = () => this.#dependencies.tasks.finish(id, outcome);
    await finish().catch((error: unknown) => {
      this.#dependencies.log.error('could not end a task', { task: id, error });
      this.#later(finish);
    });
  }

  #fail(id: string, error: VirtkeepError): Promise<void> {
    return this.#endWithout(id, { status: 'FAILED', error });
  }

  /** An end that no node tells. */
  #endWithout(id: string, outcome: TaskOutcome): Promise<void> {
    return this.#turns.run(id, async () => {
      const task = await this.#dependencies.tasks.find(id);
      if (task && !isFinal(task.row.status)) await this.#failNow(task, outcome);
    });
  }

  async #failNow(task: TaskState, outcome: TaskOutcome): Promise<void> {
    await this.ends
      .clearUp(task)
      .catch((error: unknown) =>
        this.#dependencies.log.error('could not clear up after a task', { task: task.row.id, error }),
      );
    await this.#end(task, outcome);
  }

  /** Called at start by what is to hear how far tasks are. */
  setProgressListener(listener: (operation: Operation) => void): void {
    this.#progressListener = listener;
  }

  async #progress(operation: Operation, isBack: boolean): Promise<void> {
    this.#progressListener(operation);
    await this.#dependencies.tasks.update(operation.id, { ...progressOf(operation), staysLost: !isBack });
  }

  /**
   * Compares all open tasks of a node with its journal; called whenever it has come back, before it is connected, and after a restart. What
   * has ended has its end; what is LOST and runs waits for `connected`.
   */
  async reattach(nodeId: string, clients: AgentClients): Promise<void> {
    for (const task of await this.#dependencies.tasks.unfinished(nodeId)) {
      const { id } = task.row;
      this.#stopping.delete(id);
      if (this.#starting.has(id)) {
        this.#unsettled.set(id, nodeId);
        continue;
      }
      this.#unsettled.delete(id);
      await this.#check(task, clients, false);
    }
  }

  /**
   * The node is back. What `reattach` has left to a start call that has ended by now is asked for, and so is what is lost: it goes on from
   * now on.
   */
  async connected(nodeId: string): Promise<void> {
    const isLeft = ([taskId, id]: [string, string]) => id === nodeId && !this.#starting.has(taskId);
    const left = new Set([...this.#unsettled].filter(isLeft).map(([taskId]) => taskId));
    for (const taskId of left) this.#unsettled.delete(taskId);
    const open = await this.#dependencies.tasks.unfinished(nodeId);
    for (const { row } of open.filter(({ row }) => left.has(row.id) || row.status === 'LOST'))
      await this.#checkNow(row.id).catch(() => this.#checkLater(row.id));
  }

  async #checkAll(states: TaskState[]): Promise<void> {
    for (const task of states) {
      const nodeId = task.row.node_id;
      if (nodeId === null || !this.#dependencies.links.isConnected(nodeId) || this.#starting.has(task.row.id))
        continue;
      await this.#check(task, this.#dependencies.links.clients(nodeId));
    }
  }

  async #check(task: TaskState, clients: AgentClients, isBack = true): Promise<void> {
    if (!(await this.#ask(task, clients, isBack))) await this.#failUnknown(task);
  }

  /** @returns false when its node does not know it, and never will: a start call that is still on its way is refused */
  async #ask(task: TaskState, clients: AgentClients, isBack = true): Promise<boolean> {
    const { id, node_id: nodeId } = task.row;
    if (nodeId === null || task.row.is_multitask === 1) return true;
    try {
      const signal = AbortSignal.timeout(ASK_TIMEOUT_MS);
      await this.apply(nodeId, await clients.operations.get({ id, refuseUnknown: true }, { signal }), isBack);
      return true;
    } catch (error) {
      if (!hasKey(error, 'operation_not_found')) throw error;
      return false;
    }
  }

  #failUnknown({ row: { id, node_id: nodeId } }: TaskState): Promise<void> {
    const node = this.#dependencies.inventory.nodes.get(nodeId!)?.row.verbose_name ?? nodeId!;
    return this.#fail(id, new VirtkeepError('operation_unknown', { node }));
  }

  async #cancel(task: TaskState): Promise<void> {
    const { id, node_id: nodeId, status } = task.row;
    // it ends with its parts
    if (task.row.is_multitask === 1) return;
    if (nodeId === null) throw new VirtkeepError('not_cancellable', { id, status });
    try {
      await this.#stop(id, nodeId);
    } catch (error) {
      const early = hasKey(error, 'operation_not_found') && this.#starting.has(id);
      if (!early && !isUncertain(error)) throw error;
      this.#dependencies.log.info('a task will be cancelled when its node tells of it', {
        node: nodeId,
        task: id,
      });
    }
  }

  async #stop(id: string, nodeId: string): Promise<void> {
    const { operations } = this.#dependencies.links.clients(nodeId);
    this.#stopping.add(id);
    try {
      const signal = AbortSignal.timeout(ASK_TIMEOUT_MS);
      await this.apply(nodeId, await operations.cancel({ id }, { signal }));
    } catch (error) {
      this.#stopping.delete(id);
      throw error;
    }
  }

  /**
   * Runs work of the controller itself as a task (a short call to a node, say). It does not survive a restart: then it
   * fails as interrupted.
   */
  async runLocal(
    task: Omit<NewTask, 'nodeId' | 'id' | 'cancellable'> & { taskId: string },
    work: (signal: AbortSignal) => Promise<unknown>,
  ): Promise<TaskState> {
    const { taskId, ...rest } = task;
    const created = await this.#dependencies.tasks.create({ ...rest, id: taskId, cancellable: false });
    void outcomeOf(taskId, () => work(this.#dependencies.draining), this.#dependencies.log).then(outcome =>
      this.#finishSurely(taskId, outcome),
    );
    return created;
  }

  /** After a restart: work of the controller itself that was under way is over. */
  async failInterrupted(): Promise<void> {
    for (const task of await this.#dependencies.tasks.unfinished()) {
      if (task.row.node_id !== null || task.row.is_multitask === 1) continue;
      await this.#fail(task.row.id, new VirtkeepError('interrupted'));
    }
  }
}
