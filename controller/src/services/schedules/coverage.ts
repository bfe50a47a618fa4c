/**
 * Which scheduled tasks back a VM up, and by when each has last promised to, for its protection; and how the tasks are doing, for metrics.
 * Made anew now and then, and when a task has changed, since it is asked for every VM of every list.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Logger } from '@virtkeep/shared/log';
import { shareLoop } from '@virtkeep/shared/turns';
import type { ScheduledTaskRow } from '../../store/schema.ts';
import type { QueueMeasures, ScheduleMeasures, ScheduleMetricsSource } from '../monitoring/sources.ts';
import type { CoverageSource } from '../protection/coverage.ts';
import type { Expectation } from '../protection/rules.ts';
import type { Clock } from './clock.ts';
import { definitionIn, dueTimesOf, type ScheduleDefinition } from './definition.ts';
import { latestDue } from './due.ts';
import type { ScheduleStore } from './store.ts';
import type { Targets } from './targets.ts';

export interface CoverageDependencies {
  store: ScheduleStore;
  clock: Clock;
  targets: (definition: ScheduleDefinition) => Targets;
  /** How long after a due time its backup may take. */
  graceMs: () => number;
  queue: () => QueueMeasures;
  log: Logger;
}

const FRESH_MS = 60_000;
/** So many due times to come have a longest interval between them that is about as long as any: that of a long month. */
const COMING = 5;
const NONE: readonly Expectation[] = [];

export class ScheduleCoverage implements CoverageSource, ScheduleMetricsSource {
  readonly #dependencies: CoverageDependencies;
  #expectations: ReadonlyMap<string, readonly Expectation[]> = new Map();
  #promised: ReadonlyMap<string, Expectation> = new Map();
  #measures: readonly ScheduleMeasures[] = [];
  #madeAt = Number.NEGATIVE_INFINITY;
  #making: Promise<void> | undefined;

  constructor(dependencies: CoverageDependencies) {
    this.#dependencies = dependencies;
  }

  /** Of the enabled ones. */
  tasks(): readonly ScheduleMeasures[] {
    return this.#measures;
  }

  queue(): QueueMeasures {
    return this.#dependencies.queue();
  }

  expectationsOf(domainId: string): readonly Expectation[] {
    return this.#expectations.get(domainId) ?? NONE;
  }

  /** What is answered from, which is replaced as a whole and never changed. */
  get version(): unknown {
    return this.#expectations;
  }

  /** A task has changed. */
  changed(): void {
    this.#madeAt = Number.NEGATIVE_INFINITY;
  }

  /** Makes it anew when it is old. @throws what the store does; then it is as it was, and is made anew the next time */
  refresh(): Promise<void> {
    this.#making ??= this.#remake().finally(() => {
      this.#making = undefined;
    });
    return this.#making;
  }

  async #remake(): Promise<void> {
    const now = this.#dependencies.clock.now().getTime();
    if (Math.abs(now - this.#madeAt) < FRESH_MS) return;
    // before it is made: a task may change meanwhile
    this.#madeAt = now;
    try {
      await this.#make(now);
    } catch (error) {
      this.changed();
      throw error;
    }
  }

  async #make(now: number): Promise<void> {
    const { store, targets, log } = this.#dependencies;
    const made = new Map<string, readonly Expectation[]>();
    const promised = new Map<string, Expectation>();
    const measures: ScheduleMeasures[] = [];
    for (const task of await store.tasks()) {
      await shareLoop();
      if (task.enabled === 1) measures.push(measuresOf(task));
      if (task.enabled === 0) continue;
      try {
        const definition = definitionIn(task);
        if (definition.action !== 'backup') continue;
        const expectation = this.#asBefore(this.#expectationOf(task, definition, now), promised);
        for (const { id } of targets(definition).found) made.set(id, [...(made.get(id) ?? []), expectation]);
      } catch (error) {
        log.warn('a scheduled task promises nothing', { task: task.id, error });
      }
    }
    let isOther = made.size !== this.#expectations.size;
    for (const [id, expectations] of made) {
      const before = this.#expectations.get(id);
      if (before && isSame(before, expectations)) made.set(id, before);
      else isOther = true;
    }
    this.#promised = promised;
    if (isOther) this.#expectations = made;
    this.#measures = measures;
  }

  /** The same thing as before when it says the same: whoever judges VMs by it sees at once that nothing has changed. */
  #asBefore(made: Expectation, promised: Map<string, Expectation>): Expectation {
    const before = this.#promised.get(made.id);
    const expectation = before && isDeepStrictEqual(before, made) ? before : made;
    promised.set(made.id, expectation);
    return expectation;
  }

  #expectationOf(
    { id, verbose_name, created }: ScheduledTaskRow,
    definition: ScheduleDefinition,
    now: number,
  ): Expectation {
    const graceMs = this.#dependencies.graceMs();
    const times = dueTimesOf(definition);
    const due = latestDue(times, Date.parse(created), now - graceMs);
    // of a task that was due only that it goes on is asked: its due times are looked for each minute
    const coming = times.following(now, due === null ? COMING : 2);
    const intervals = coming.slice(1).map((time, index) => time - coming[index]!);
    const intervalMs = intervals.length === 0 ? null : Math.max(...intervals) + graceMs;
    return { id, verbose_name, latestDue: due, intervalMs };
  }
}

const isSame = (before: readonly Expectation[], now: readonly Expectation[]): boolean =>
  before.length === now.length && before.every((expectation, index) => expectation === now[index]);

function measuresOf(task: ScheduledTaskRow): ScheduleMeasures {
  const time = (text: string | null) => (text === null ? null : Date.parse(text));
  return {
    id: task.id,
    name: task.verbose_name,
    nextRun: time(task.next_run),
    lastSuccess: time(task.last_success),
    lastDurationMs: task.last_duration_ms,
  };
}
