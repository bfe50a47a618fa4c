/** Takes parts through the steps of their action (`steps/`), each a row of ordinary tasks, and tries again what may pass. */
import { ERRORS, type ErrorKey, hasKey, isVirtkeepError, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { ScheduledPartRow } from '../../store/schema.ts';
import { isFinal } from '../tasks/record.ts';
import { type AwayNodes, NODE_WAIT_MS } from './away-nodes.ts';
import type { Behind } from './behind.ts';
import type { ScheduleDefinition } from './definition.ts';
import type { SchedulerDependencies } from './needs.ts';
import type { OpenParts, PlacedPart } from './open-parts.ts';
import { LONGEST_DELAY_MS } from './queue.ts';
import { endedTask, NotKnownYet, type OpenPart, type Step, type StepEnd } from './steps/step.ts';
import { keyOf } from './store.ts';

export interface PartStepsDependencies
  extends Pick<SchedulerDependencies, 'tasks' | 'clock' | 'elapsedMs' | 'surroundings' | 'log'> {
  parts: OpenParts;
  awayNodes: AwayNodes;
  behind: Behind;
}

/** A start that was cut off in the middle, so that its node does not know of it, is made again so often. */
const MAX_UNKNOWN = 3;
/** A task that has failed so was never begun: its node does not know of it, or the database broke before it was told. */
const CUT_OFF: readonly ErrorKey[] = ['operation_unknown', 'database_unavailable'];

export class PartSteps {
  readonly #dependencies: PartStepsDependencies;
  /** Since when tasks are LOST, by the part's key, as was first seen; in ms of `elapsedMs`. */
  readonly #lostSince = new Map<string, number>();
  /** How often the start of a part's task was cut off, one after another, by the part's key. */
  readonly #cutOff = new Map<string, number>();
  /**
   * The first calls of a node's parts, one after another, so that a thousand that begin at once are no storm. A part that has no node (the scan of a
   * pool finds its own) waits for none. A look at its run may make a part's first call earlier: that is one call, under the part's turn.
   */
  readonly #starts = new KeyedQueue();

  constructor(dependencies: PartStepsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Decides how a part that waits is done, writes that down, and has its first step taken behind: a node that hangs keeps its own parts
   * waiting, and nobody else's.
   */
  async begin(key: string): Promise<void> {
    const { parts, behind } = this.#dependencies;
    const waiting = parts.waiting.get(key);
    if (!waiting) return;
    await parts.inTurn(key, () => this.#decide(waiting));
    const { row } = parts.running.get(key) ?? {};
    if (row === undefined) return;
    behind.run('begin a part of', row.run_id, () =>
      this.#starts.run(row.node_id ?? key, () => parts.inTurn(key, () => this.#advance(key))),
    );
  }

  async #decide(waiting: PlacedPart): Promise<void> {
    const { parts, surroundings, clock } = this.#dependencies;
    const { row, queued } = waiting;
    if (!parts.waiting.has(queued.key)) return;
    const place = await surroundings.place(waiting);
    if (place.gone) return parts.close(row, 'SKIPPED', place.gone);
    const { mode, extend, notes } = await surroundings.decide(waiting);
    await parts.run(waiting, {
      status: 'RUNNING',
      step: this.#stepsOf(waiting)[0]![0],
      task_id: null,
      node_id: place.nodeId,
      pool_id: place.poolId,
      estimate: Math.round(place.estimate),
      mode,
      extend_id: extend,
      subject: null,
      error_json: null,
      notes_json: JSON.stringify([...(JSON.parse(row.notes_json) as string[]), ...notes]),
      started: row.started ?? clock.now().toISOString(),
    });
  }

  /** A part of the run may have ended, or its cancel is asked for. */
  async look(runId: string): Promise<void> {
    const { parts } = this.#dependencies;
    const goOn = (key: string) => parts.inTurn(key, () => this.#advance(key));
    const ends = await Promise.allSettled([...parts.running.keysOf(runId)].map(goOn));
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
  }

  /** A node that stays away with a task of ours: what becomes of it is not known, and the run does not wait for ever. */
  async lookForLost(): Promise<void> {
    const { parts, tasks, elapsedMs } = this.#dependencies;
    const now = elapsedMs();
    const lost = await tasks.lost();
    for (const [key, { row }] of [...parts.running.entries()]) {
      const nodeId = row.task_id === null ? undefined : lost.get(row.task_id);
      if (nodeId === undefined) {
        this.#lostSince.delete(key);
        continue;
      }
      const since = this.#lostSince.get(key) ?? now;
      this.#lostSince.set(key, since);
      if (now - since < NODE_WAIT_MS) continue;
      const error = new VirtkeepError('outcome_unknown', { node: nodeId });
      await parts.inTurn(key, async () => {
        if (parts.running.get(key)?.row.task_id !== row.task_id) return;
        // one that has ended meanwhile is taken by its step
        const task = await tasks.find(row.task_id!);
        if (task?.row.status === 'LOST') await this.#close(row, error);
      });
    }
  }

  #stepsOf({ definition }: { definition: ScheduleDefinition }) {
    return this.#dependencies.surroundings.steps[definition.action];
  }

  /** Goes on with a part as far as it goes without waiting. */
  async #advance(key: string): Promise<void> {
    const { parts, behind } = this.#dependencies;
    for (let more = true; more; ) {
      const part = parts.running.get(key);
      if (!part || behind.isStopping) return;
      more = await this.#advanceOnce({ ...part });
    }
  }

  /** @returns whether there may be more to do at once */
  async #advanceOnce(part: OpenPart): Promise<boolean> {
    const { row } = part;
    const found = this.#stepsOf(part).find(([name]) => name === row.step);
    if (!found) throw new Error(`a part of the run ${row.run_id} is at the step ${row.step}, which is none`);
    const [, step] = found;
    if (row.task_id === null) return this.#planNext(part, step);
    const task = await this.#dependencies.tasks.find(row.task_id);
    if (task === undefined) return this.#startTask(part, step, row.task_id);
    if (!isFinal(task.row.status)) return false;
    const ended = endedTask(task);
    const isCutOff = step.unbegun !== undefined && hasKey(ended.error, ...CUT_OFF);
    if (isCutOff && this.#countCutOff(row) <= MAX_UNKNOWN) {
      await this.#dependencies.parts.write(row, { ...(await step.unbegun?.(part)), task_id: null });
      await this.#dependencies.parts.note(
        row,
        'The start of a task did not reach its node: it was begun anew',
      );
      return true;
    }
    this.#cutOff.delete(keyOf(row));
    return this.#take(part, await step.ended(part, ended));
  }

  /** @returns how often in a row the start of its present step did not reach the node, this time counted */
  #countCutOff(row: ScheduledPartRow): number {
    const count = (this.#cutOff.get(keyOf(row)) ?? 0) + 1;
    this.#cutOff.set(keyOf(row), count);
    return count;
  }

  async #planNext(part: OpenPart, step: Step): Promise<boolean> {
    const { row } = part;
    if (await this.#dependencies.tasks.isToEnd(row.run_id)) return this.#canceled(part);
    if (step.asksNode && this.#waitsForNode(part)) return false;
    const planned = await step
      .plan(part)
      .catch((error: unknown) => (error instanceof NotKnownYet ? error : this.#failureOf(error, row)));
    if (planned instanceof NotKnownYet) return this.#later(part);
    if (planned instanceof VirtkeepError) return this.#failed(part, planned);
    if (planned === null) return this.#nextStep(part, {});
    const columns = { task_id: planned.taskId ?? newId(), subject: planned.subject ?? null };
    const { parts } = this.#dependencies;
    if (planned.note !== undefined) await parts.note(row, planned.note);
    await parts.write(row, columns);
    return true;
  }

  /** Between two steps of a run that is cancelled: what was made stays. */
  async #canceled({ row }: OpenPart): Promise<boolean> {
    const { parts } = this.#dependencies;
    if (row.file_id === null) await parts.close(row, 'CANCELED', new VirtkeepError('canceled'));
    else {
      await parts.note(row, 'It was cancelled after the backup: its further steps were left out');
      await parts.succeed(row);
    }
    return false;
  }

  async #startTask(part: OpenPart, step: Step, taskId: string): Promise<boolean> {
    const { row, run } = part;
    const { tasks, behind } = this.#dependencies;
    if (this.#waitsForNode(part)) return false;
    const user = { id: run.user_id, username: run.username, parent: run.id };
    let refusal: unknown = new Error(`the step ${row.step} has begun no task`);
    try {
      await step.begin(part, user, taskId);
    } catch (error) {
      // it has not failed: the next controller begins it, under the same id
      if (hasKey(error, 'draining')) return false;
      if (error instanceof NotKnownYet) return this.#later(part);
      // whether it is a task shows now, or when the next tick looks again
      if (hasKey(error, 'database_unavailable')) behind.troubled.add(run.id);
      refusal = error;
    }
    // one that is a task tells its end by itself, although its start may have been refused
    const task = await tasks.find(taskId);
    if (task !== undefined) return isFinal(task.row.status);
    const failure = this.#failureOf(refusal, row);
    return this.#take(part, await step.ended(part, { status: 'FAILED', state: null, error: failure }));
  }

  /** True while its node is away and may come back in time: the next tick looks again. */
  #waitsForNode({ row, run }: OpenPart): boolean {
    const { awayNodes, behind } = this.#dependencies;
    const waits = awayNodes.waitsFor(row.node_id);
    if (waits) behind.troubled.add(run.id);
    return waits;
  }

  /** Nothing has begun: the next tick plans the step's next task anew. */
  async #later({ row }: OpenPart): Promise<boolean> {
    const { parts, behind } = this.#dependencies;
    if (row.task_id !== null) await parts.write(row, { task_id: null });
    behind.troubled.add(row.run_id);
    return false;
  }

  /** @throws database_unavailable: the step has not failed; the next tick goes on with it, and begins its task under the same id */
  #failureOf(error: unknown, row: ScheduledPartRow): VirtkeepError {
    if (hasKey(error, 'database_unavailable')) throw error;
    if (isVirtkeepError(error)) return error;
    this.#dependencies.log.error('a step of a scheduled run failed', {
      run: row.run_id,
      step: row.step,
      error,
    });
    return new VirtkeepError('internal', { request_id: row.run_id });
  }

  async #take(part: OpenPart, end: StepEnd): Promise<boolean> {
    const { row } = part;
    const { parts } = this.#dependencies;
    if (end.go === 'fail') return this.#failed(part, end.error);
    if (end.note !== undefined) await parts.note(row, end.note);
    const columns = { ...end.columns, task_id: null };
    if (end.go === 'next') return this.#nextStep(part, columns);
    await parts.write(row, columns);
    return true;
  }

  async #nextStep(part: OpenPart, columns: Partial<ScheduledPartRow>): Promise<boolean> {
    const { row } = part;
    const { parts } = this.#dependencies;
    const steps = this.#stepsOf(part);
    const at = steps.findIndex(([name]) => name === row.step);
    const next = steps[at + 1];
    if (next === undefined) {
      await parts.write(row, columns);
      await parts.succeed(row);
      return false;
    }
    await parts.write(row, { subject: null, ...columns, step: next[0], task_id: null });
    return true;
  }

  /** Once more, later, when it may pass; else the part has failed. */
  async #failed(part: OpenPart, error: VirtkeepError): Promise<boolean> {
    const { row } = part;
    const { parts, clock } = this.#dependencies;
    const canceled = isCancel(error);
    if (canceled && row.file_id !== null) return this.#canceled(part);
    const delayMs = canceled ? null : delayBeforeNext(part, error);
    if (delayMs === null) await this.#close(row, error);
    else {
      await parts.note(row, `Attempt ${row.attempt} failed: ${error.message}`);
      await parts.waitAgain(part, clock.now().getTime() + delayMs);
    }
    return false;
  }

  /** A backup that is made is a good one without the steps after it, but for its comparison. */
  async #close(row: ScheduledPartRow, error: VirtkeepError): Promise<void> {
    const { parts } = this.#dependencies;
    if (row.file_id === null || row.step === 'verify')
      return parts.close(row, isCancel(error) ? 'CANCELED' : 'FAILED', error);
    await parts.note(row, `Its further steps were left out: ${error.message}`);
    await parts.close(row, 'PARTIAL', error);
  }
}

const isCancel = ({ msgKey }: VirtkeepError): boolean => msgKey === 'canceled';

/** In ms; null: there is no further attempt. */
function delayBeforeNext({ row, definition }: OpenPart, error: VirtkeepError): number | null {
  const { retries, retry_delay_s } = definition;
  if (row.file_id !== null) return null;
  if (CUT_OFF.includes(error.msgKey) && row.attempt <= MAX_UNKNOWN) return 0;
  if (row.attempt > retries || !ERRORS[error.msgKey].retryable) return null;
  return Math.min(LONGEST_DELAY_MS, retry_delay_s * 1000 * 2 ** (row.attempt - 1));
}
