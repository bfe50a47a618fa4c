/** The runs that have not ended: each is a task of many parts, and ends when all its parts have an outcome. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { ScheduledRunRow } from '../../store/schema.ts';
import type { Behind } from './behind.ts';
import { definitionIn, type ScheduleDefinition, windowEndOf } from './definition.ts';
import type { SchedulerDependencies } from './needs.ts';
import type { OpenParts, OpenRun } from './open-parts.ts';
import type { PartSteps } from './part-steps.ts';
import type { QueuedRun } from './queue.ts';
import { isOpen, outcomeOfRun } from './run-outcome.ts';
import type { NewRun } from './store.ts';

export interface RunsDependencies
  extends Pick<SchedulerDependencies, 'store' | 'clock' | 'tasks' | 'multiTasks' | 'surroundings' | 'log'> {
  parts: OpenParts;
  steps: PartSteps;
  behind: Behind;
}

export const RUN_TASK = 'scheduled_run';
/** A window ends at the next time of day that it names; zones leave out a day at most. */
const LONGEST_WINDOW_MS = 2 * 86_400_000;

export class Runs {
  readonly #dependencies: RunsDependencies;
  readonly #open = new Map<string, OpenRun>();
  /** Ends of windows, by the run's id, that count while those that are written are too far away. */
  readonly #reckonedEnds = new Map<string, string>();
  /** One word at a time on the end of each. */
  readonly #turns = new KeyedQueue();

  constructor(dependencies: RunsDependencies) {
    this.#dependencies = dependencies;
    // what ends a task may be at work on the same part: it does not wait for us
    dependencies.multiTasks.leaveTo(RUN_TASK, async runId =>
      dependencies.behind.run('look after', runId, () => this.look(runId)),
    );
  }

  /** After a start: all that are written as under way, with their parts. */
  async load(): Promise<void> {
    const { store, parts } = this.#dependencies;
    for (const row of await store.running()) this.#add(row);
    for (const row of await store.openParts()) {
      const run = this.#open.get(row.run_id);
      if (run) await parts.add(row, run);
    }
  }

  /** Goes on with what was under way when the controller stopped. */
  async resume(): Promise<void> {
    const { tasks, store } = this.#dependencies;
    for (const { row } of await tasks.unfinished())
      if (row.name === RUN_TASK && (await store.run(row.id)) === undefined)
        await tasks.finish(row.id, { status: 'FAILED', error: new VirtkeepError('interrupted') });
    for (const [runId, run] of [...this.#open]) {
      await this.#ensureTask(run);
      await this.look(runId);
    }
  }

  /** One that is on disk now: what fails is done by the next tick. */
  async begin({ run: row, parts }: NewRun): Promise<void> {
    try {
      const run = this.#add(row);
      await this.#createTask(run);
      for (const part of parts) await this.#dependencies.parts.add(part, run);
    } catch (error) {
      this.#dependencies.behind.troubled.add(row.id);
      throw error;
    }
    if (parts.length === 0) await this.look(row.id);
  }

  /** Those that are written as under way, and not known here. */
  async unknown(): Promise<Pick<ScheduledRunRow, 'id' | 'scheduled_task_id'>[]> {
    const running = await this.#dependencies.store.runningIds();
    return running.filter(({ id }) => !this.#open.has(id));
  }

  /** Those that something failed for go on from what is written. One that fails again does not keep the others waiting. */
  async lookAfterTroubled(): Promise<void> {
    const { behind, log } = this.#dependencies;
    for (const runId of [...behind.troubled]) {
      behind.troubled.delete(runId);
      try {
        await this.#adopt(runId);
        // its nodes may take long to answer
        behind.run('look after', runId, () => this.look(runId));
      } catch (error) {
        log.error('could not look after a run', { run: runId, error });
        behind.troubled.add(runId);
      }
    }
  }

  /** What has not begun when the window ends does not begin; what runs goes on or is cancelled, as the task says. */
  async endWindows(now: Date): Promise<void> {
    const { parts, tasks } = this.#dependencies;
    const until = now.toISOString();
    for (const run of [...this.#open.values()]) {
      const { row, definition } = run;
      const end = this.#windowEnd(run, now);
      if (end === null || end > until) continue;
      const error = new VirtkeepError('window_ended', { end });
      await parts.closeWaiting(row.id, 'SKIPPED', error);
      if (definition.window_action === 'cancel') await tasks.cancelParts(row.id);
    }
  }

  /**
   * As it is written; null: never. No window is longer than {@link LONGEST_WINDOW_MS}: while it ends later than that, the clock was wrong then
   * or is so now, and it ends as if the run had begun when that was seen.
   */
  #windowEnd({ row, definition }: OpenRun, now: Date): string | null {
    if (row.window_end === null) return null;
    const isNear = (end: string) => Date.parse(end) - now.getTime() <= LONGEST_WINDOW_MS;
    if (isNear(row.window_end)) return row.window_end;
    const known = this.#reckonedEnds.get(row.id);
    if (known !== undefined && isNear(known)) return known;
    const end = new Date(windowEndOf(definition, now.getTime())!).toISOString();
    this.#reckonedEnds.set(row.id, end);
    return end;
  }

  /** A part of the run may have ended, or its cancel is asked for. */
  async look(runId: string): Promise<void> {
    if (!this.#open.has(runId)) return;
    const { tasks, parts, steps } = this.#dependencies;
    if (await tasks.isToEnd(runId))
      await parts.closeWaiting(runId, 'CANCELED', new VirtkeepError('canceled'));
    await steps.look(runId);
    await this.#finishInTurn(runId);
  }

  /** A part of the run has its outcome. */
  finishBehind(runId: string): void {
    this.#dependencies.behind.run('end', runId, () => this.#finishInTurn(runId));
  }

  #add(row: ScheduledRunRow): OpenRun {
    const definition = definitionIn(row);
    const run = { row, definition, queued: queuedRun(row, definition) };
    this.#open.set(row.id, run);
    return run;
  }

  /** Takes over what is written of a run and not known here. */
  async #adopt(runId: string): Promise<void> {
    const { store, parts } = this.#dependencies;
    const row = await store.run(runId);
    if (row === undefined || row.status !== 'RUNNING') return this.#forget(runId);
    const run = this.#open.get(runId) ?? this.#add(row);
    await this.#ensureTask(run);
    for (const part of (await store.parts(runId)).filter(isOpen)) await parts.adopt(part, run);
  }

  /** The run is over, or gone with its task. */
  #forget(runId: string): void {
    this.#open.delete(runId);
    this.#reckonedEnds.delete(runId);
    this.#dependencies.parts.forget(runId);
  }

  /** The task of many parts that shows the run; one that a crash has kept from being made is made now. */
  async #ensureTask(run: OpenRun): Promise<void> {
    if ((await this.#dependencies.tasks.find(run.row.id)) === undefined) await this.#createTask(run);
  }

  async #createTask({ row, definition }: OpenRun): Promise<void> {
    await this.#dependencies.tasks.create({
      id: row.id,
      name: RUN_TASK,
      verboseName: definition.verbose_name,
      user: { id: row.user_id, username: row.username },
      entities: [{ id: row.scheduled_task_id, class: 'scheduled_task' }],
      multitask: true,
      adopted: true,
    });
  }

  #finishInTurn(runId: string): Promise<void> {
    return this.#turns.run(runId, () => this.#finish(runId));
  }

  /** Ends the run when all its parts have an outcome; else tells how far it is. */
  async #finish(runId: string): Promise<void> {
    const run = this.#open.get(runId);
    if (!run) return;
    const { store, tasks, clock, surroundings } = this.#dependencies;
    if ((await store.run(runId)) === undefined) return this.#forget(runId);
    const parts = await store.parts(runId);
    const open = parts.filter(isOpen).length;
    if (open > 0) {
      const progress = Math.trunc((100 * (parts.length - open)) / parts.length);
      return tasks.update(runId, { progress });
    }
    const missing = JSON.parse(run.row.missing_json) as string[];
    const canceled = await tasks.isToEnd(runId);
    const outcome = outcomeOfRun(run.definition, { parts, missing, canceled });
    // where there are no parts, none of them says why
    const reason = outcome.status === 'FAILED' && parts.length === 0 ? outcome.error.message : run.row.reason;
    const ended = { ...run.row, status: outcome.status, reason, finished: clock.now().toISOString() };
    await surroundings.ended(ended, parts);
    await tasks.finish(runId, outcome);
    await store.endRun(ended);
    this.#forget(runId);
  }
}

const queuedRun = (
  { id, due_time, created }: ScheduledRunRow,
  { parallel_limit }: ScheduleDefinition,
): QueuedRun => ({
  id,
  isManual: due_time === null,
  due: Date.parse(due_time ?? created),
  parallel: parallel_limit,
});
