/** What scheduled tasks did and will do between two instants: the runs that were, then the times at which they are due. */
import type { ScheduledRunRow, ScheduledTaskRow } from '../../store/schema.ts';
import { definitionIn, dueTimesOf, modeOn } from './definition.ts';
import type { RunStatus } from './run-outcome.ts';

/** Of one task: those of each hour of 62 days, and some more. */
const MOST_OF_ONE = 1500;
export const MOST_OCCURRENCES = 5000;
/** Of these, whatever was: what is to come is not left out for it. */
export const MOST_COMING = 3000;

export interface Occurrence {
  scheduled_task: { id: string; verbose_name: string };
  /** When it was begun, or is due. */
  time: string;
  /** Null: it is still to come. */
  run: string | null;
  status: RunStatus | null;
  /** By the calendar alone; null: it was, or it is no backup. */
  mode: 'full' | 'increment' | null;
}

/** In ms since 1970; `to` is not in it. */
export interface Span {
  from: number;
  to: number;
}

/** Of runs that were recorded. */
export function past(tasks: readonly ScheduledTaskRow[], runs: readonly ScheduledRunRow[]): Occurrence[] {
  const names = new Map(tasks.map(({ id, verbose_name }) => [id, verbose_name]));
  return runs.map(({ id, scheduled_task_id, created, status }) => ({
    scheduled_task: { id: scheduled_task_id, verbose_name: names.get(scheduled_task_id) ?? '' },
    time: created,
    run: id,
    status: status as RunStatus,
    mode: null,
  }));
}

/** Of those that are due by themselves; at most `most`, the soonest of all tasks together. */
export function coming(tasks: readonly ScheduledTaskRow[], { from, to }: Span, most: number): Occurrence[] {
  const rows = tasks.flatMap(task => {
    if (task.enabled !== 1 || task.next_run === null) return [];
    const { id, verbose_name, next_run } = task;
    const definition = definitionIn(task);
    const times = dueTimesOf(definition);
    const due = times.next(Math.max(from, Date.parse(next_run)) - 1);
    return [{ scheduled_task: { id, verbose_name }, definition, times, due, count: 0 }];
  });
  const found: Occurrence[] = [];
  while (found.length < most) {
    let soonest: { row: (typeof rows)[number]; due: number } | undefined;
    for (const row of rows) {
      if (row.due === null || row.due >= to || row.count >= MOST_OF_ONE) continue;
      if (soonest === undefined || row.due < soonest.due) soonest = { row, due: row.due };
    }
    if (soonest === undefined) break;
    const { row, due } = soonest;
    const { scheduled_task, definition } = row;
    const time = new Date(due).toISOString();
    found.push({ scheduled_task, time, run: null, status: null, mode: modeOn(definition, due) });
    row.due = row.times.next(due);
    row.count += 1;
  }
  return found;
}
