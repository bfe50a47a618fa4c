/**
 * Runs scheduled tasks. A tick takes what is due (`due-runs.ts` says what that means), and begins as many of the waiting parts as the limits
 * allow (`queue.ts`). A part goes through its steps (`steps/`), each of which is a row of ordinary tasks on the nodes; the run itself is a
 * task of many parts. Everything is in the database before it happens: after a crash at any instant the next controller goes on where
 * this one stopped, and nothing is begun twice.
 */
import {
  ERRORS,
  type ErrorKey,
  hasKey,
  isErrorKey,
  isVirtkeepError,
  VirtkeepError,
} from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { Logger } from '@virtkeep/shared/log';
import { Turns } from '@virtkeep/shared/turns';
import type { ScheduledPartRow, ScheduledRunRow, ScheduledTaskRow } from '../../store/schema.ts';
import type { EventService } from '../journal/events.ts';
import type { MultiTasks } from '../tasks/multi-tasks.ts';
import { errorOfRow, isFinal, taskError } from '../tasks/record.ts';
import type { TaskService, TaskState } from '../tasks/tasks.ts';
import type { Clock } from './clock.ts';
import { definitionIn, dueTimesOf, type ScheduleDefinition } from './definition.ts';
import { type DueFacts, dueRecords, runRecord } from './due-runs.ts';
import { BadTiming } from './due-times.ts';
import { choose, type Limits, type Load, type QueuedPart, type QueuedRun, type WaitReason } from './queue.ts';
import { outcomeOfRun } from './run-outcome.ts';
import type { EndedTask, OpenPart, Step, StepEnd } from './steps/step.ts';
import { newRun, type PartKey, type ScheduleStore } from './store.ts';

export const RUN_TASK = 'scheduled_run';

/** What is decided right before a part begins. */
export interface Decision {
  mode: string;
  /** The file that is to be extended, when the task names it. */
  extend: string | null;
  notes: string[];
}

/** What the scheduler asks of the rest of the controller. */
export interface Surroundings {
  /** What a task of this definition is about, now. */
  targets(definition: ScheduleDefinition): Pick<DueFacts, 'targets' | 'entityClass'>;
  /** Where a part would run, and what it would take. */
  place(part: OpenPart): Promise<Place>;
  decide(part: OpenPart): Promise<Decision>;
  /** What others do on the nodes and pools, and what is free there. */
  load(ownTasks: ReadonlySet<string>): Promise<Pick<Load, 'byNode' | 'byPool' | 'freeOfPool'>>;
  /** The steps of an action, in order. */
  steps: Readonly<Record<ScheduleDefinition['action'], readonly (readonly [name: string, step: Step])[]>>;
  limits(): Limits;
  /** Whether work may begin on a node now; null: on any. */
  isReady(nodeId: string | null): boolean;
  /** A run has an outcome; called before that is written, and again when it could not be. */
  ended(run: ScheduledRunRow, parts: readonly ScheduledPartRow[]): Promise<void>;
}

export interface Place {
  nodeId: string | null;
  poolId: string | null;
  estimate: number;
  /** It cannot be done: what it is about is gone. */
  gone?: VirtkeepError;
}

export interface SchedulerDependencies {
  store: ScheduleStore;
  clock: Clock;
  tasks: TaskService;
  multiTasks: MultiTasks;
  events: EventService;
  surroundings: Surroundings;
  /** Fires when the controller begins to stop: nothing is begun any more. */
  draining: AbortSignal;
  log: Logger;
}

export interface QueueEntry {
  run: ScheduledRunRow;
  row: ScheduledPartRow;
  reason: WaitReason;
}

/** A part that waits, with what decides when it begins. */
interface Waiting {
  row: ScheduledPartRow;
  place: Place;
}

interface OpenRun {
  row: ScheduledRunRow;
  definition: ScheduleDefinition;
}

const DUE_AT_ONCE = 500;
/** So long is a node that is away waited for; then what is to be done there fails. */
const NODE_WAIT_MS = 1_800_000;
/** Longest time before another attempt: a run that waits for one keeps the next run from beginning. */
const LONGEST_DELAY_MS = 3_600_000;
/** A start that was cut off in the middle, so that its node does not know of it, is made again so often. */
const MAX_UNKNOWN = 3;
/** A clock that is put back by more than this makes what is due next be reckoned anew. */
const CLOCK_BACK_MS = 60_000;
/** Due times that were taken so far in the future were taken by a clock that was wrong. */
const FAR_AHEAD_MS = 86_400_000;
const keyOf = ({ run_id, position }: PartKey): string => `${run_id} ${position}`;

export class Scheduler {
  readonly #dependencies: SchedulerDependencies;
  readonly #runs = new Map<string, OpenRun>();
  readonly #waiting = new Map<string, Waiting>();
  /** Running parts, by key. */
  readonly #running = new Map<string, { row: ScheduledPartRow; place: Place }>();
  /** One word at a time on each part, run and the queue. */
  readonly #turns = new KeyedQueue();
  readonly #shared = new Turns();
  #reasons = new Map<string, WaitReason>();
  readonly #pending = new Set<Promise<void>>();
  /** Since when nodes are away, and since when tasks are LOST, as was first seen; in ms since 1970. */
  readonly #awaySince = new Map<string, number>();
  readonly #lostSince = new Map<string, number>();
  #lastTick = Number.NEGATIVE_INFINITY;
  /** Runs that something failed for, of which no word may come any more: the next tick looks after them. */
  readonly #troubled = new Set<string>();
  #pumping: Promise<void> | undefined;
  #pumpAgain = false;
  #stopped = false;

  constructor(dependencies: SchedulerDependencies) {
    this.#dependencies = dependencies;
    // what ends a task may be at work on the same part: it does not wait for us
    dependencies.multiTasks.leaveTo(RUN_TASK, async runId =>
      this.#behind('look after', runId, () => this.look(runId)),
    );
  }

  /** After a start, before the first tick: what was under way goes on. */
  async load(): Promise<void> {
    const { store, clock } = this.#dependencies;
    for (const row of await store.running()) this.#open(row);
    for (const row of await store.openParts()) {
      if (!this.#runs.has(row.run_id)) continue;
      if (row.status === 'WAITING') await this.#wait(row);
      else this.#running.set(keyOf(row), { row, place: placeOf(row) });
    }
    await this.#reckon(clock.now());
  }

  /**
   * The rules of zones may have changed since what is due next was written. What is due by now is left to the first tick, and what was taken
   * stays so, though the clock may have been put back since: but for a clock that was far ahead, since the days up to there are to come.
   */
  async #reckon(now: Date): Promise<void> {
    const { store, log } = this.#dependencies;
    const takenUntil = await store.takenUntil();
    for (const task of await store.tasks()) {
      if (task.enabled === 0 || task.next_run === null || task.next_run <= now.toISOString()) continue;
      try {
        const taken = Date.parse(takenUntil.get(task.id) ?? now.toISOString());
        const from = taken - now.getTime() > FAR_AHEAD_MS ? now.getTime() : Math.max(now.getTime(), taken);
        const times = dueTimesOf(definitionIn(task));
        const next = times.next(from);
        const next_run = next === null ? null : new Date(next).toISOString();
        if (next_run !== task.next_run) await store.updateTask(task.id, { next_run });
      } catch (error) {
        log.error('a scheduled task has no calendar any more', { task: task.id, error });
      }
    }
  }

  /** Goes on with what was under way when the controller stopped: its nodes may not be there yet. */
  async resume(): Promise<void> {
    const { tasks, store } = this.#dependencies;
    for (const { row } of await tasks.unfinished())
      if (row.name === RUN_TASK && (await store.run(row.id)) === undefined)
        await tasks.finish(row.id, { status: 'FAILED', error: new VirtkeepError('interrupted') });
    for (const runId of [...this.#runs.keys()]) {
      await this.#ensureTask(this.#runs.get(runId)!.row);
      await this.look(runId);
    }
  }

  /** Takes what is due, ends windows, and begins what may begin. Never throws. */
  async tick(): Promise<void> {
    if (this.#isStopping) return;
    try {
      await this.#turns.run('tick', async () => {
        const now = this.#dependencies.clock.now();
        if (now.getTime() < this.#lastTick - CLOCK_BACK_MS) await this.#reckon(now);
        this.#lastTick = now.getTime();
        await this.#lookForLost(now.getTime());
        await this.#takeDue(now);
        await this.#endWindows(now);
      });
      for (const runId of [...this.#troubled]) await this.#lookAgain(runId);
      await this.pump();
    } catch (error) {
      this.#dependencies.log.error('a tick of the scheduled tasks failed', { error });
    }
  }

  get #isStopping(): boolean {
    return this.#stopped || this.#dependencies.draining.aborted;
  }

  /** Something failed for this run: it goes on from what is written. One that fails again does not keep the others waiting. */
  async #lookAgain(runId: string): Promise<void> {
    this.#troubled.delete(runId);
    try {
      await this.#adopt(runId);
      await this.look(runId);
    } catch (error) {
      this.#dependencies.log.error('could not look after a run', { run: runId, error });
      this.#troubled.add(runId);
    }
  }

  /** Takes over what is written of a run and not known here. */
  async #adopt(runId: string): Promise<void> {
    const { store } = this.#dependencies;
    const row = await store.run(runId);
    if (row === undefined || row.status !== 'RUNNING') return this.#forget(runId);
    if (!this.#runs.has(runId)) this.#open(row);
    await this.#ensureTask(row);
    for (const part of await store.parts(runId)) {
      const key = keyOf(part);
      await this.#turns.run(key, async () => {
        if (this.#waiting.has(key) || this.#running.has(key)) return;
        if (part.status === 'WAITING') await this.#wait(part);
        if (part.status === 'RUNNING') this.#running.set(key, { row: part, place: placeOf(part) });
      });
    }
  }

  /** The run is over, or gone with its task. */
  #forget(runId: string): void {
    this.#runs.delete(runId);
    for (const parts of [this.#waiting, this.#running])
      for (const [key, { row }] of parts) if (row.run_id === runId) parts.delete(key);
  }

  /** A node that stays away with a task of ours: what becomes of it is not known, and the run does not wait for ever. */
  async #lookForLost(now: number): Promise<void> {
    for (const [key, { row }] of [...this.#running]) {
      const task = row.task_id === null ? undefined : await this.#dependencies.tasks.find(row.task_id);
      if (task?.row.status !== 'LOST') {
        this.#lostSince.delete(key);
        continue;
      }
      const since = this.#lostSince.get(key) ?? now;
      this.#lostSince.set(key, since);
      if (now - since < NODE_WAIT_MS) continue;
      const error = new VirtkeepError('outcome_unknown', { node: task.row.node_id ?? '' });
      await this.#turns.run(key, async () => {
        if (this.#running.get(key)?.row.task_id === row.task_id) await this.#close(row, 'FAILED', error);
      });
    }
  }

  /** True while a node that is away may still come back in time; null: no node. */
  #waitsFor(nodeId: string | null): boolean {
    const { surroundings, clock } = this.#dependencies;
    if (nodeId === null || surroundings.isReady(nodeId)) {
      if (nodeId !== null) this.#awaySince.delete(nodeId);
      return false;
    }
    const now = clock.now().getTime();
    const since = this.#awaySince.get(nodeId) ?? now;
    this.#awaySince.set(nodeId, since);
    return now - since < NODE_WAIT_MS;
  }

  /** Nothing of this task begins meanwhile. */
  exclusively<T>(taskId: string, work: () => Promise<T>): Promise<T> {
    return this.#turns.run(`task ${taskId}`, work);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.settled();
  }

  /** A run now, whatever is due. @param runId also that of its task @throws schedule_running */
  runNow(task: ScheduledTaskRow, user: { id: string; username: string }, runId: string): Promise<void> {
    const { store, clock } = this.#dependencies;
    return this.#turns.run(`task ${task.id}`, async () => {
      if (await store.isRunning(task.id))
        throw new VirtkeepError('schedule_running', { name: task.verbose_name });
      const definition = definitionIn(task);
      const row = { ...newRun(task, clock.now()), id: runId, user_id: user.id, username: user.username };
      const facts = { isRunning: false, ...this.#dependencies.surroundings.targets(definition) };
      const record = runRecord(row, definition, facts);
      await store.insertRun(record);
      await this.#begun(record.run);
      this.#pumpBehind(row.id);
    });
  }

  /** Parts that wait, in the order in which they come as things are. */
  queue(): QueueEntry[] {
    return [...this.#reasons].flatMap(([key, reason]) => {
      const waiting = this.#waiting.get(key);
      const run = waiting && this.#runs.get(waiting.row.run_id)?.row;
      return run ? [{ run, row: waiting.row, reason }] : [];
    });
  }

  /** How many parts wait, and since when the one that has waited longest (ms since 1970). */
  queueMeasures(): { length: number; oldest: number | null } {
    const since = [...this.#waiting.values()].map(({ row }) => this.#runs.get(row.run_id)?.row.created ?? '');
    const oldest = since.reduce((first, time) => (first === '' || time < first ? time : first), '');
    return { length: since.length, oldest: oldest === '' ? null : Date.parse(oldest) };
  }

  async #takeDue(now: Date): Promise<void> {
    for (let more = true; more; ) {
      const due = await this.#dependencies.store.due(now, DUE_AT_ONCE);
      let taken = 0;
      for (const task of due) {
        await this.#shared.share();
        const isTaken = await this.#turns
          .run(`task ${task.id}`, () => this.#takeOne(task, now))
          .catch(error => this.#notTaken(task, error));
        taken += Number(isTaken);
      }
      // what could not be taken is tried again by the next tick
      more = due.length === DUE_AT_ONCE && taken > 0;
    }
  }

  /** A calendar that cannot be read any more (its zone is gone from the system) is told once; anything else may pass. */
  async #notTaken(task: ScheduledTaskRow, error: unknown): Promise<boolean> {
    const { store, events, log } = this.#dependencies;
    log.error('a scheduled task could not be begun', { task: task.id, error });
    if (!(error instanceof BadTiming)) return false;
    await store.updateTask(task.id, { next_run: null });
    await events.record({
      type: 'error',
      message: `The scheduled task ${task.verbose_name} cannot run any more`,
      detailMessage: error.message,
      entities: [{ id: task.id, class: 'scheduled_task' }],
    });
    return true;
  }

  async #takeOne(task: ScheduledTaskRow, now: Date): Promise<boolean> {
    const { store, surroundings } = this.#dependencies;
    const definition = definitionIn(task);
    const facts = { isRunning: await store.isRunning(task.id), ...surroundings.targets(definition) };
    const due = dueRecords(task, facts, now);
    if (due === undefined || !(await store.take(task, due.next, due.records))) return false;
    for (const { run } of due.records) {
      const written = await store.run(run.id);
      if (written === undefined) continue;
      if (written.status === 'RUNNING') await this.#begun(written);
      else await this.#tellNotRun(task, written);
    }
    return true;
  }

  async #tellNotRun(task: ScheduledTaskRow, run: ScheduledRunRow): Promise<void> {
    await this.#dependencies.events.record({
      type: 'warning',
      message: `The scheduled task ${task.verbose_name} did not run at ${run.due_time}`,
      detailMessage: run.reason,
      entities: [{ id: task.id, class: 'scheduled_task' }],
    });
  }

  #open(row: ScheduledRunRow): OpenRun {
    const run = { row, definition: definitionIn(row) };
    this.#runs.set(row.id, run);
    return run;
  }

  /** It is on disk: what fails now is done by the next tick. */
  async #begun({ id }: ScheduledRunRow): Promise<void> {
    this.#troubled.add(id);
    await this.#adopt(id);
    this.#troubled.delete(id);
    if (![...this.#waiting.values()].some(({ row }) => row.run_id === id)) await this.look(id);
  }

  async #wait(row: ScheduledPartRow): Promise<void> {
    const { surroundings } = this.#dependencies;
    const run = this.#runs.get(row.run_id)!;
    const place = await surroundings.place({ row, run: run.row, definition: run.definition });
    this.#waiting.set(keyOf(row), { row, place });
  }

  /** The task of many parts that shows the run; one that a crash has kept from being made is made now. */
  async #ensureTask(row: ScheduledRunRow): Promise<void> {
    const { tasks } = this.#dependencies;
    if (await tasks.find(row.id)) return;
    const { definition } = this.#runs.get(row.id)!;
    await tasks.create({
      id: row.id,
      name: RUN_TASK,
      verboseName: definition.verbose_name,
      user: { id: row.user_id, username: row.username },
      entities: [{ id: row.scheduled_task_id, class: 'scheduled_task' }],
      multitask: true,
    });
  }

  /** What has not begun when the window ends does not begin; what runs goes on or is cancelled, as the task says. */
  async #endWindows(now: Date): Promise<void> {
    for (const { row, definition } of [...this.#runs.values()]) {
      if (row.window_end === null || row.window_end > now.toISOString()) continue;
      await this.#closeWaiting(row.id, 'SKIPPED', new VirtkeepError('window_ended', { end: row.window_end }));
      if (definition.window_action === 'cancel') await this.#dependencies.tasks.cancelParts(row.id);
    }
  }

  async #closeWaiting(runId: string, status: string, error: VirtkeepError): Promise<void> {
    for (const [key, { row }] of [...this.#waiting])
      if (row.run_id === runId)
        await this.#turns.run(key, async () => {
          if (this.#waiting.has(key)) await this.#close(row, status, error);
        });
  }

  /** Begins as many waiting parts as the limits allow. */
  pump(): Promise<void> {
    this.#pumpAgain = true;
    this.#pumping ??= this.#pumpAll().finally(() => {
      this.#pumping = undefined;
    });
    return this.#pumping;
  }

  async #pumpAll(): Promise<void> {
    while (this.#pumpAgain && !this.#isStopping) {
      this.#pumpAgain = false;
      await this.#pumpOnce();
    }
  }

  async #pumpOnce(): Promise<void> {
    if (this.#waiting.size === 0) {
      this.#reasons = new Map();
      return;
    }
    const { surroundings, clock, log } = this.#dependencies;
    const now = clock.now().getTime();
    const runs = new Map<string, QueuedRun>();
    for (const [id, { row, definition }] of this.#runs)
      runs.set(id, {
        id,
        isManual: row.due_time === null,
        due: Date.parse(row.due_time ?? row.created),
        parallel: definition.parallel_limit,
      });
    const parts: QueuedPart[] = [...this.#waiting]
      .filter(([, { row }]) => runs.has(row.run_id))
      .map(([key, { row, place }]) => ({
        key,
        runId: row.run_id,
        ...place,
        notBefore: row.not_before === null ? 0 : Date.parse(row.not_before),
        waitsForNode: this.#waitsFor(place.nodeId),
      }));
    const { begin, waiting } = choose({ parts, runs }, await this.#load(), surroundings.limits(), now);
    this.#reasons = new Map(waiting.map(({ key, reason }) => [key, reason]));
    for (const key of begin) {
      await this.#shared.share();
      await this.#begin(key).catch(error => {
        log.error('a part of a run could not be begun', { part: key, error });
        this.#troubled.add(key.split(' ')[0]!);
      });
    }
  }

  async #load(): Promise<Load> {
    const running = [...this.#running.values()];
    const own = new Set(running.flatMap(({ row }) => row.task_id ?? []));
    const { byNode, byPool, freeOfPool } = await this.#dependencies.surroundings.load(own);
    const [nodes, pools, free] = [new Map(byNode), new Map(byPool), new Map(freeOfPool)];
    const byRun = new Map<string, number>();
    for (const { row, place } of running) {
      count(byRun, row.run_id);
      if (place.nodeId !== null) count(nodes, place.nodeId);
      if (place.poolId === null) continue;
      count(pools, place.poolId);
      const { poolId } = place;
      if (free.has(poolId)) free.set(poolId, free.get(poolId)! - place.estimate);
    }
    return { byRun, byNode: nodes, byPool: pools, freeOfPool: free };
  }

  /** Decides how a part is done, writes that down, and takes its first step. */
  async #begin(key: string): Promise<void> {
    const waiting = this.#waiting.get(key);
    const run = waiting && this.#runs.get(waiting.row.run_id);
    if (!waiting || !run) return;
    await this.#turns.run(key, async () => {
      if (!this.#waiting.has(key)) return;
      const { surroundings, store, clock } = this.#dependencies;
      const part = { row: waiting.row, run: run.row, definition: run.definition };
      const place = await surroundings.place(part);
      if (place.gone) return this.#close(waiting.row, 'SKIPPED', place.gone);
      const { mode, extend, notes } = await surroundings.decide(part);
      const columns = {
        status: 'RUNNING',
        step: this.#steps(run)[0]![0],
        task_id: null,
        node_id: place.nodeId,
        pool_id: place.poolId,
        estimate: Math.round(place.estimate),
        mode,
        extend_id: extend,
        subject: null,
        notes_json: JSON.stringify([...(JSON.parse(waiting.row.notes_json) as string[]), ...notes]),
        started: waiting.row.started ?? clock.now().toISOString(),
      };
      await store.updatePart(waiting.row, columns);
      const row = { ...waiting.row, ...columns };
      this.#waiting.delete(key);
      this.#running.set(key, { row, place });
      await this.#advance(key);
    });
  }

  #steps({ definition }: OpenRun) {
    return this.#dependencies.surroundings.steps[definition.action];
  }

  /** A part of the run may have ended, or its cancel is asked for. */
  async look(runId: string): Promise<void> {
    const run = this.#runs.get(runId);
    if (!run) return;
    const task = await this.#dependencies.tasks.find(runId);
    if (task?.row.cancel_requested === 1)
      await this.#closeWaiting(runId, 'CANCELED', new VirtkeepError('canceled'));
    for (const [key, { row }] of [...this.#running])
      if (row.run_id === runId) await this.#turns.run(key, () => this.#advance(key));
    await this.#turns.run(`run ${runId}`, () => this.#finish(runId));
  }

  /** Goes on with a part as far as it goes without waiting. */
  async #advance(key: string): Promise<void> {
    for (let more = true; more; ) {
      const running = this.#running.get(key);
      const run = running && this.#runs.get(running.row.run_id);
      if (!running || !run || this.#isStopping) return;
      more = await this.#advanceOnce({ row: running.row, run: run.row, definition: run.definition });
    }
  }

  /** @returns whether there may be more to do at once */
  async #advanceOnce(part: OpenPart): Promise<boolean> {
    const { row } = part;
    const run = this.#runs.get(row.run_id)!;
    const found = this.#steps(run).find(([name]) => name === row.step);
    if (!found) throw new Error(`a part of the run ${row.run_id} is at the step ${row.step}, which is none`);
    const [, step] = found;
    if (row.task_id === null) return this.#planNext(part, step);
    const task = await this.#dependencies.tasks.find(row.task_id);
    if (task === undefined) return this.#startTask(part, step, row.task_id);
    if (!isFinal(task.row.status)) return false;
    return this.#take(part, await step.ended(part, endedTask(task)));
  }

  async #planNext(part: OpenPart, step: Step): Promise<boolean> {
    const { row } = part;
    if (await this.#isCanceled(row.run_id)) return this.#canceled(part);
    const planned = await step.plan(part).catch((error: unknown) => this.#failureOf(error, row));
    if (planned instanceof VirtkeepError) return this.#failed(part, planned);
    if (planned === null) return this.#nextStep(part, {});
    await this.#write(row, { task_id: planned.taskId ?? newId(), subject: planned.subject ?? null });
    return true;
  }

  async #isCanceled(runId: string): Promise<boolean> {
    return (await this.#dependencies.tasks.find(runId))?.row.cancel_requested === 1;
  }

  /** Between two steps of a run that is cancelled: what was made stays. */
  async #canceled(part: OpenPart): Promise<boolean> {
    const { row } = part;
    if (row.file_id === null) await this.#close(row, 'CANCELED', new VirtkeepError('canceled'));
    else {
      await this.#note(row, 'It was cancelled after the backup: its further steps were left out');
      await this.#close(this.#running.get(keyOf(row))!.row, 'SUCCESS', null);
    }
    return false;
  }

  async #startTask(part: OpenPart, step: Step, taskId: string): Promise<boolean> {
    const { row, run } = part;
    if (this.#waitsFor(row.node_id)) {
      this.#troubled.add(run.id);
      return false;
    }
    const user = { id: run.user_id, username: run.username, parent: run.id };
    try {
      await step.begin(part, user, taskId);
    } catch (error) {
      // it has not failed: the next controller begins it, under the same id
      if (hasKey(error, 'draining')) return false;
      // one that is a task already tells its end by itself
      const task = await this.#dependencies.tasks.find(taskId);
      if (task !== undefined) return isFinal(task.row.status);
      const failure = this.#failureOf(error, row);
      return this.#take(part, await step.ended(part, { status: 'FAILED', state: null, error: failure }));
    }
    return true;
  }

  #failureOf(error: unknown, row: ScheduledPartRow): VirtkeepError {
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
    if (end.go === 'fail') return this.#failed(part, end.error);
    if (end.note !== undefined) await this.#note(row, end.note);
    const columns = { ...end.columns, task_id: null };
    if (end.go === 'next') return this.#nextStep(part, columns);
    await this.#write(row, columns);
    return true;
  }

  async #nextStep(part: OpenPart, columns: Partial<ScheduledPartRow>): Promise<boolean> {
    const { row } = part;
    const steps = this.#steps(this.#runs.get(row.run_id)!);
    const at = steps.findIndex(([name]) => name === row.step);
    const next = steps[at + 1];
    if (next === undefined) {
      await this.#write(row, columns);
      await this.#close(this.#running.get(keyOf(row))!.row, 'SUCCESS', null);
      return false;
    }
    await this.#write(row, { subject: null, ...columns, step: next[0], task_id: null });
    return true;
  }

  /** Once more, later, when it may pass; else the part has failed. */
  async #failed(part: OpenPart, error: VirtkeepError): Promise<boolean> {
    const { row, definition } = part;
    const { retries, retry_delay_s } = definition;
    const canceled = error.msgKey === 'canceled';
    if (canceled && row.file_id !== null) return this.#canceled(part);
    const wasNotBegun = error.msgKey === 'operation_unknown' && row.attempt <= MAX_UNKNOWN;
    if (
      row.file_id === null &&
      !canceled &&
      (wasNotBegun || (row.attempt <= retries && isRetryable(error)))
    ) {
      const delayMs = wasNotBegun
        ? 0
        : Math.min(LONGEST_DELAY_MS, retry_delay_s * 1000 * 2 ** (row.attempt - 1));
      const not_before = new Date(+this.#dependencies.clock.now() + delayMs).toISOString();
      const note = `Attempt ${row.attempt} failed: ${error.message}`;
      await this.#note(row, note);
      const columns = {
        status: 'WAITING',
        step: '',
        task_id: null,
        subject: null,
        attempt: row.attempt + 1,
        not_before,
      };
      await this.#write(row, columns);
      const again = this.#running.get(keyOf(row))!.row;
      this.#running.delete(keyOf(row));
      await this.#wait(again);
      this.#pumpBehind(row.run_id);
      return false;
    }
    await this.#close(row, canceled ? 'CANCELED' : 'FAILED', error);
    return false;
  }

  async #note(row: ScheduledPartRow, text: string): Promise<void> {
    const current = this.#running.get(keyOf(row))?.row ?? row;
    const notes = [...(JSON.parse(current.notes_json) as string[]), text];
    await this.#write(row, { notes_json: JSON.stringify(notes) });
  }

  async #write(key: PartKey, columns: Partial<ScheduledPartRow>): Promise<void> {
    await this.#dependencies.store.updatePart(key, columns);
    const running = this.#running.get(keyOf(key));
    if (running) running.row = { ...running.row, ...columns };
  }

  /** Gives a part its outcome. */
  async #close(row: ScheduledPartRow, status: string, error: VirtkeepError | null): Promise<void> {
    const { store, clock } = this.#dependencies;
    await store.updatePart(row, {
      status,
      error_json: error === null ? null : JSON.stringify(taskError(error)),
      finished: clock.now().toISOString(),
    });
    this.#waiting.delete(keyOf(row));
    this.#running.delete(keyOf(row));
    this.#pumpBehind(row.run_id);
    // its own turn: the caller holds that of the part
    this.#behind('end', row.run_id, () =>
      this.#turns.run(`run ${row.run_id}`, () => this.#finish(row.run_id)),
    );
  }

  #pumpBehind(runId: string): void {
    this.#behind('go on after', runId, () => this.pump());
  }

  /** Work that nobody waits for but the end of the controller, and tests. */
  #behind(what: string, runId: string, work: () => Promise<void>): void {
    if (this.#stopped) return;
    const { log } = this.#dependencies;
    const done: Promise<void> = work()
      .catch((error: unknown) => {
        log.error(`could not ${what} a run`, { run: runId, error });
        this.#troubled.add(runId);
      })
      .finally(() => this.#pending.delete(done));
    this.#pending.add(done);
  }

  /** Nothing is left to do before the next tick or the end of a task. */
  async settled(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending);
    await this.#pumping;
  }

  /** Ends the run when all its parts have an outcome; else tells how far it is. */
  async #finish(runId: string): Promise<void> {
    const run = this.#runs.get(runId);
    if (!run) return;
    const { store, tasks, clock, surroundings } = this.#dependencies;
    if ((await store.run(runId)) === undefined) return this.#forget(runId);
    const parts = await store.parts(runId);
    const open = parts.filter(({ status }) => status === 'WAITING' || status === 'RUNNING').length;
    if (open > 0) {
      const progress = Math.trunc((100 * (parts.length - open)) / parts.length);
      return tasks.update(runId, { progress });
    }
    const missing = JSON.parse(run.row.missing_json) as string[];
    const task = await tasks.find(runId);
    const outcome = outcomeOfRun(parts, missing, task?.row.cancel_requested === 1);
    const ended = { ...run.row, status: outcome.status, finished: clock.now().toISOString() };
    await surroundings.ended(ended, parts);
    await tasks.finish(runId, outcome);
    await store.endRun(ended);
    this.#forget(runId);
  }
}

function count(counts: Map<string, number>, id: string): void {
  counts.set(id, (counts.get(id) ?? 0) + 1);
}

const placeOf = ({ node_id, pool_id, estimate }: ScheduledPartRow): Place => ({
  nodeId: node_id,
  poolId: pool_id,
  estimate,
});

const isRetryable = ({ msgKey }: VirtkeepError): boolean => ERRORS[msgKey].retryable;

function endedTask(state: TaskState): EndedTask {
  const status = state.row.status as EndedTask['status'];
  const told = errorOfRow(state.row);
  if (told === null) return { status, state, error: null };
  const key: ErrorKey = isErrorKey(told.msg_key) ? told.msg_key : 'internal';
  const error = new VirtkeepError(key);
  error.message = told.detail;
  return { status, state, error };
}
