/** What is recorded when a scheduled task is due: a run with its parts, or that there was none, and when it is due next; pure. */
import type { ScheduledRunRow, ScheduledTaskRow } from '../../store/schema.ts';
import { definitionIn, dueTimesOf, type ScheduleDefinition, windowEndOf } from './definition.ts';
import { type Missed, whatIsDue } from './due.ts';
import type { DueTimes } from './due-times.ts';
import { type NewRun, newPart, newRun } from './store.ts';
import type { Targets } from './targets.ts';

/** Where due times that were taken are so far in the future, the clock was wrong then or is so now. */
const FAR_AHEAD_MS = 86_400_000;

export interface DueRecords {
  next: string | null;
  records: NewRun[];
}

export interface DueFacts {
  /** A run of the task has not ended. */
  isRunning: boolean;
  targets: () => Targets;
  /** The class of what it is about. */
  entityClass: string;
}

/** @returns undefined: nothing is due */
export function dueRecords(task: ScheduledTaskRow, facts: DueFacts, now: Date): DueRecords | undefined {
  const definition = definitionIn(task);
  if (task.next_run === null) return undefined;
  const times = dueTimesOf(definition);
  const owed = firstOwed(task, times, now.getTime());
  if (owed === null || owed > now.getTime()) return { next: isoOf(owed), records: [] };
  const due = whatIsDue(times, owed, definition.missed_run, now.getTime());
  if (due === null) return undefined;
  const next = isoOf(due.next);
  const missed = due.missed?.count ?? 0;
  if (due.run === null)
    return { next, records: due.missed === null ? [] : [missedRecord(task, due.missed, now)] };
  const run = { ...newRun(task, now), due_time: new Date(due.run).toISOString(), missed_count: missed };
  if (facts.isRunning) {
    const reason = 'the run before had not ended';
    return { next, records: [{ run: ended(run, 'SKIPPED', reason, now), parts: [] }] };
  }
  return { next, records: [runRecord(run, definition, facts)] };
}

/**
 * The first due time that the task is to have a run for, of those from `next_run` on; null: none. What a clock that was far behind has
 * found due next may be long before somebody made the task. A change of it that names other times, or stops it, drops what was due; any
 * other one does not: that waits for its tick.
 */
function firstOwed({ next_run, created }: ScheduledTaskRow, times: DueTimes, now: number): number | null {
  const next = Date.parse(next_run!);
  const made = Date.parse(created);
  return next < made && made <= now ? times.next(made - 1) : next;
}

/**
 * When a task is due next, reckoned anew. What is due by now is left to the next tick, and what was taken stays so, though the clock may have
 * been put back since. But where that is far ahead, the clock was wrong then or is so now: the next due time from now is waited for, and
 * nothing is said of those that were taken (`ScheduleStore.take`).
 * @param taken up to when its due times were taken, in ms since 1970; now where none was
 */
export function reckonedNext(task: ScheduledTaskRow, taken: number, now: Date): string | null {
  const { enabled, next_run } = task;
  if (enabled === 0 || (next_run !== null && next_run <= now.toISOString())) return next_run;
  // found far ahead before, it is not believed now that it has come nearer
  const wasFarAhead = next_run !== null && Date.parse(next_run) <= taken;
  const isFarAhead = wasFarAhead || taken - now.getTime() > FAR_AHEAD_MS;
  // it will not be due again, unless a clock that was ahead has taken its last due time
  if (next_run === null && !isFarAhead) return null;
  const from = isFarAhead ? now.getTime() : Math.max(now.getTime(), taken);
  return isoOf(dueTimesOf(definitionIn(task)).next(from));
}

const isoOf = (time: number | null): string | null => (time === null ? null : new Date(time).toISOString());

/** A run with its parts. @param run with its due time; one that somebody asked for has none, and no window */
export function runRecord(run: ScheduledRunRow, definition: ScheduleDefinition, facts: DueFacts): NewRun {
  const { found, missing } = facts.targets();
  const windowEnd = run.due_time === null ? null : windowEndOf(definition, Date.parse(run.created));
  return {
    run: {
      ...run,
      window_end: windowEnd === null ? null : new Date(windowEnd).toISOString(),
      missing_json: JSON.stringify(missing),
    },
    parts: found.map(({ id, name }, position) =>
      newPart(run.id, position, { id, class: facts.entityClass, name }),
    ),
  };
}

function missedRecord(task: ScheduledTaskRow, { last, count }: Missed, now: Date): NewRun {
  const run = { ...newRun(task, now), due_time: new Date(last).toISOString(), missed_count: count };
  const reason = 'nobody was there to begin it, and the task says to skip what was missed';
  return { run: ended(run, 'MISSED', reason, now), parts: [] };
}

/** When the task is due cannot be reckoned any more: its zone is gone from the system. @param why a sentence without its full stop */
export function neverAgainRecord(task: ScheduledTaskRow, why: string, now: Date): NewRun {
  const reason = `it cannot run any more: ${why}`;
  return { run: ended({ ...newRun(task, now), due_time: task.next_run }, 'SKIPPED', reason, now), parts: [] };
}

function ended(run: ScheduledRunRow, status: string, reason: string, now: Date): ScheduledRunRow {
  return { ...run, status, reason, finished: now.toISOString() };
}
