/** What of a scheduled task is to happen now: a function of the task, the instant and the time that was due next; pure. */
import type { DueTimes } from './due-times.ts';

/** What becomes of runs that were due while nobody was there to begin them. */
export type MissedRun = 'run_once' | 'skip';

export interface Due {
  /** The due time whose run begins now, in ms since 1970; null when none does. */
  run: number | null;
  /** Those that were not begun and never will be. */
  missed: Missed | null;
  /** When it is due next; null: never again. */
  next: number | null;
}

export interface Missed {
  first: number;
  /** None of them is later. */
  last: number;
  /** At most {@link MOST_COUNTED}, which stands for that many or more. */
  count: number;
}

/** So late a run still counts as in time: a tick of a busy controller, or a restart of it. */
export const IN_TIME_MS = 600_000;
export const MOST_COUNTED = 1000;

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** How far back the last due time is looked for, step by step: where it is often due, few of them are looked at. At last from the start. */
const LOOKS_BACK_MS = [HOUR_MS, DAY_MS, 32 * DAY_MS, 400 * DAY_MS, Number.POSITIVE_INFINITY];

/**
 * @param nextRun the due time that was computed last and has not happened
 * @param now in ms since 1970; a clock that was put back makes nothing due twice, since `nextRun` only grows
 * @returns null when nothing is to happen
 */
export function whatIsDue(times: DueTimes, nextRun: number, missedRun: MissedRun, now: number): Due | null {
  if (nextRun > now) return null;
  const after = times.next(nextRun);
  const isOnly = after === null || after > now;
  const last = isOnly ? nextRun : lastDue(times, nextRun, now);
  const next = isOnly ? after : times.next(now);
  const isLate = now - last > IN_TIME_MS;
  if (isLate && missedRun === 'skip') return { run: null, missed: missedOf(times, nextRun, last), next };
  return { run: last, missed: last === nextRun ? null : missedOf(times, nextRun, last, false), next };
}

/** The latest due time up to now; at least the one that is known. */
function lastDue(times: DueTimes, known: number, now: number): number {
  return latestDue(times, known, now) ?? known;
}

/** The latest due time from one instant to another, in ms since 1970; null: there is none. */
export function latestDue(times: DueTimes, since: number, until: number): number | null {
  for (const span of LOOKS_BACK_MS) {
    let found: number | null = null;
    const from = Math.max(since, until - span);
    for (let due = times.next(from - 1); due !== null && due <= until; due = times.next(due)) found = due;
    if (found !== null || from === since) return found;
  }
  return null;
}

/** @param inclusive whether the last is among them */
function missedOf(times: DueTimes, first: number, last: number, inclusive = true): Missed {
  let count = 1;
  let end = first;
  for (let due = times.next(first); due !== null && count < MOST_COUNTED; due = times.next(due)) {
    if (inclusive ? due > last : due >= last) return { first, last: end, count };
    count += 1;
    end = due;
  }
  return { first, last, count };
}
