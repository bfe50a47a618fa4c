/**
 * Runs scheduled tasks. A tick takes what is due (`due-runs.ts` says what that means), and begins as many of the waiting parts as the limits
 * allow (`queue-pump.ts`). A part goes through its steps (`part-steps.ts`); the run itself is a task of many parts (`runs.ts`). Everything
 * is in the database before it happens: after a crash at any instant the next controller goes on where this one stopped, and nothing is
 * begun twice.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import { shareLoop } from '@virtkeep/shared/turns';
import { ClockBelief, JUMP_MS } from '../../clock-belief.ts';
import type { Database, ScheduledPartRow, ScheduledRunRow, ScheduledTaskRow } from '../../store/schema.ts';
import { AwayNodes } from './away-nodes.ts';
import { Behind } from './behind.ts';
import { definitionIn } from './definition.ts';
import { IN_TIME_MS } from './due.ts';
import { dueRecords, neverAgainRecord, reckonedNext, runRecord } from './due-runs.ts';
import { BadTiming } from './due-times.ts';
import type { SchedulerDependencies } from './needs.ts';
import { OpenParts } from './open-parts.ts';
import { PartSteps } from './part-steps.ts';
import type { WaitReason } from './queue.ts';
import { QueuePump } from './queue-pump.ts';
import { Runs } from './runs.ts';
import { newRun } from './store.ts';

export interface QueueEntry {
  run: ScheduledRunRow;
  row: ScheduledPartRow;
  reason: WaitReason;
}

const DUE_AT_ONCE = 500;
/** No tick for so long: the controller slept or the clock jumped, and what was due in between did not come by the clock's steady course. */
const LONGEST_GAP_MS = 600_000;

export class Scheduler {
  readonly #dependencies: SchedulerDependencies;
  readonly #behind: Behind;
  readonly #parts: OpenParts;
  readonly #steps: PartSteps;
  readonly #runs: Runs;
  readonly #queue: QueuePump;
  readonly #awayNodes: AwayNodes;
  /** One word at a time on each task, and one tick. */
  readonly #turns = new KeyedQueue();
  readonly #belief = new ClockBelief();
  /** What the clock showed when it was believed last, in ms since 1970. */
  #lastTick = Number.NEGATIVE_INFINITY;
  /** The first tick since which the clock has not jumped: what is due later comes while somebody looks. In ms since 1970. */
  #steadySince = Number.POSITIVE_INFINITY;

  constructor(dependencies: SchedulerDependencies) {
    this.#dependencies = dependencies;
    this.#behind = new Behind(dependencies.draining, dependencies.log);
    this.#parts = new OpenParts(dependencies, {
      waits: runId => this.#queue.pumpBehind(runId),
      ended: runId => {
        this.#queue.pumpBehind(runId);
        this.#runs.finishBehind(runId);
      },
    });
    this.#awayNodes = new AwayNodes(dependencies);
    const shared = {
      ...dependencies,
      behind: this.#behind,
      parts: this.#parts,
      awayNodes: this.#awayNodes,
    };
    this.#steps = new PartSteps(shared);
    this.#runs = new Runs({ ...shared, steps: this.#steps });
    this.#queue = new QueuePump({ ...shared, steps: this.#steps });
  }

  /** After a start, before the first tick: what was under way goes on. */
  async load(): Promise<void> {
    await this.#runs.load();
    await this.#reckon(this.#dependencies.clock.now());
  }

  /** Goes on with what was under way when the controller stopped: its nodes may not be there yet. */
  resume(): Promise<void> {
    return this.#runs.resume();
  }

  /** Takes what is due, ends windows, and begins what may begin. Never throws. */
  async tick(): Promise<void> {
    if (this.#behind.isStopping) return;
    try {
      this.#awayNodes.forgetReturned();
      await this.#turns.run('tick', async () => {
        await this.#steps.lookForLost();
        await this.#findUnanswered();
        const { clock, elapsedMs } = this.#dependencies;
        const now = clock.now();
        // nothing is taken, and nothing ended, by a clock that may be ahead for a moment only
        if (this.#belief.believes(now.getTime(), elapsedMs())) await this.#keepTime(now);
      });
      await this.#runs.lookAfterTroubled();
      await this.#queue.pump();
    } catch (error) {
      this.#dependencies.log.error('a tick of the scheduled tasks failed', { error });
    }
  }

  /** What was written though its answer was lost, as when the connection broke, nobody has begun: it is looked after as what failed is. */
  async #findUnanswered(): Promise<void> {
    // who has just written it begins it in the same turn
    for (const { id, scheduled_task_id: taskId } of await this.#runs.unknown())
      await this.exclusively(taskId, async () => void this.#behind.troubled.add(id));
  }

  async #keepTime(now: Date): Promise<void> {
    const isBack = now.getTime() < this.#lastTick - JUMP_MS;
    if (isBack || now.getTime() > this.#lastTick + LONGEST_GAP_MS) this.#steadySince = now.getTime();
    if (isBack) await this.#reckon(now);
    this.#lastTick = now.getTime();
    await this.#takeDue(now);
    await this.#runs.endWindows(now);
  }

  /** A run now, whatever is due. @param runId also that of its task @throws schedule_running */
  runNow(task: ScheduledTaskRow, user: { id: string; username: string }, runId: string): Promise<void> {
    const { store, clock } = this.#dependencies;
    return this.exclusively(task.id, async () => {
      if (await store.isRunning(task.id))
        throw new VirtkeepError('schedule_running', { name: task.verbose_name });
      const definition = definitionIn(task);
      const row = { ...newRun(task, clock.now()), id: runId, user_id: user.id, username: user.username };
      const facts = { isRunning: false, ...this.#dependencies.surroundings.targets(definition) };
      const record = runRecord(row, definition, facts);
      await store.insertRun(record);
      await this.#runs.begin(record);
      this.#queue.pumpBehind(runId);
    });
  }

  /** Nothing of this task begins meanwhile, and nobody else changes it. */
  exclusively<T>(taskId: string, work: () => Promise<T>): Promise<T> {
    return this.#turns.run(`task ${taskId}`, work);
  }

  /** Parts that wait, in the order in which they come as things are. */
  queue(): QueueEntry[] {
    return this.#queue.waiting().map(({ run, row, reason }) => ({ run, row, reason }));
  }

  /** How many parts wait, and since when the one that has waited longest (ms since 1970). */
  queueMeasures(): { length: number; oldest: number | null } {
    const since = [...this.#parts.waiting.values()].map(({ run }) => run.created);
    const oldest = since.reduce((first, time) => (first === '' || time < first ? time : first), '');
    return { length: since.length, oldest: oldest === '' ? null : Date.parse(oldest) };
  }

  /** Nothing begins any more; what is being written is waited for. */
  async stop(): Promise<void> {
    this.#behind.stop();
    await this.settled();
  }

  /** Nothing is left to do before the next tick or the end of a task. */
  async settled(): Promise<void> {
    await this.#behind.settled();
    await this.#queue.settled();
  }

  /** The rules of zones may have changed since what is due next was written, or the clock was put back. */
  async #reckon(now: Date): Promise<void> {
    const { store, log } = this.#dependencies;
    const takenUntil = await store.takenUntil();
    for (const task of await store.tasks()) {
      const taken = Date.parse(takenUntil.get(task.id) ?? now.toISOString());
      try {
        if (reckonedNext(task, taken, now) === task.next_run) continue;
        // somebody may change it meanwhile
        await this.exclusively(task.id, async () => {
          const row = await store.task(task.id);
          if (row) await store.updateTask(task.id, { next_run: reckonedNext(row, taken, now) });
        });
      } catch (error) {
        log.error('a scheduled task has no calendar any more', { task: task.id, error });
      }
    }
  }

  async #takeDue(now: Date): Promise<void> {
    for (let more = true; more; ) {
      const due = await this.#dependencies.store.due(now, DUE_AT_ONCE);
      let taken = 0;
      for (const task of due) {
        await shareLoop();
        const isTaken = await this.exclusively(task.id, () => this.#takeOne(task, now)).catch(error =>
          this.#notTaken(task, error),
        );
        taken += Number(isTaken);
      }
      // what could not be taken is tried again by the next tick
      more = due.length === DUE_AT_ONCE && taken > 0;
    }
  }

  /** A calendar that cannot be read any more (its zone is gone from the system) is told once; anything else may pass. */
  async #notTaken(task: ScheduledTaskRow, error: unknown): Promise<boolean> {
    const { store, events, surroundings, clock, log } = this.#dependencies;
    log.error('a scheduled task could not be begun', { task: task.id, error });
    if (!(error instanceof BadTiming)) return false;
    const records = [neverAgainRecord(task, error.message, clock.now())];
    const due = { next: null, records, cameByNow: false };
    await store.take(task, due, (run, db) => surroundings.notRun(run, undefined, db));
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
    const former = await store.openRun(task.id);
    const facts = { isRunning: former !== undefined, ...surroundings.targets(definition) };
    const due = dueRecords(task, facts, now);
    if (due === undefined) return false;
    const tell = async (run: ScheduledRunRow, db: Database) => {
      if (run.status !== 'RUNNING') await surroundings.notRun(run, former, db);
    };
    const cameByNow = due.records.some(({ run }) => this.#cameByNow(run, now));
    const written = await store.take(task, { ...due, cameByNow }, tell);
    if (written === undefined) return false;
    for (const record of written)
      if (record.run.status === 'RUNNING') await this.#runs.begin(record);
      else await this.#recordNotRun(task, record.run);
    return true;
  }

  /** Its due time passed while this clock went on without a jump, not long ago. */
  #cameByNow({ due_time }: ScheduledRunRow, now: Date): boolean {
    const due = Date.parse(due_time!);
    return due > this.#steadySince && now.getTime() - due <= IN_TIME_MS;
  }

  async #recordNotRun(task: ScheduledTaskRow, run: ScheduledRunRow): Promise<void> {
    await this.#dependencies.events.record({
      type: 'warning',
      message: `The scheduled task ${task.verbose_name} did not run at ${run.due_time}`,
      detailMessage: run.reason,
      entities: [{ id: task.id, class: 'scheduled_task' }],
    });
  }
}
