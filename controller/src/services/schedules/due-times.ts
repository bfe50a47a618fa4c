/**
 * When a scheduled task is due: a function of its settings and an instant, pure. A time that the clocks leave out when they are put forward is
 * due at the moment they are, and one that they show twice is due the first time. `croner` reads the calendar only, as if it were of UTC:
 * with a zone it leaves times out, or has them twice, where an expression names several hours.
 */

import { ZoneTime } from '@virtkeep/shared/zone-time';
import { Cron } from 'croner';

export const WEEKDAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] as const;
export type Weekday = (typeof WEEKDAYS)[number];

/** The time of day, where there is one, is that of the start. */
export type Recurrence =
  | { periodicity: 'once' }
  /** By the time that passes, whatever the clocks are put to. */
  | { periodicity: 'hourly'; hours: number }
  | { periodicity: 'daily' }
  /** At least one of them. */
  | { periodicity: 'weekly'; weekdays: readonly Weekday[] }
  /** A day that a month does not have is its last. */
  | { periodicity: 'monthly'; day: number | 'last' }
  | { periodicity: 'monthly'; nth: 1 | 2 | 3 | 4 | 'last'; weekday: Weekday }
  /** Five fields: minute, hour, day, month, day of the week. */
  | { periodicity: 'cron'; expression: string };

export interface Timing {
  recurrence: Recurrence;
  /** Nothing is due before, in ms since 1970. */
  start: number;
  /** IANA name. */
  timeZone: string;
}

const HOUR_MS = 3_600_000;
const CRON_FIELDS = 5;

/** Why settings are refused, as a sentence without its full stop. */
export class BadTiming extends Error {}

export class DueTimes {
  readonly #timing: Timing;
  readonly #patterns: readonly Cron[];

  /** @throws BadTiming for an expression that is none, or that is never due, and for a zone that is not known */
  constructor(timing: Timing) {
    this.#timing = timing;
    this.#patterns = patternsOf(timing).map(cronOf);
    if (this.next(timing.start - 1) === null) throw new BadTiming('it is never due');
  }

  /** The first due time after an instant; null when there is none. Both in ms since 1970. */
  next(after: number): number | null {
    const { recurrence, start } = this.#timing;
    const from = Math.max(after, start - 1);
    if (recurrence.periodicity === 'once') return start > from ? start : null;
    if (recurrence.periodicity === 'hourly') {
      const step = recurrence.hours * HOUR_MS;
      return start + Math.max(0, Math.floor((from - start) / step) + 1) * step;
    }
    const found = this.#patterns.flatMap(pattern => this.#nextOf(pattern, from) ?? []);
    return found.length === 0 ? null : Math.min(...found);
  }

  #nextOf(pattern: Cron, after: number): number | undefined {
    const zone = zoneOf(this.#timing.timeZone);
    let shown = pattern.nextRun(new Date(after + zone.offsetAt(after)));
    // what is shown the second time is past
    while (shown !== null && zone.firstInstantOf(shown.getTime()) <= after) shown = pattern.nextRun(shown);
    return shown === null ? undefined : zone.firstInstantOf(shown.getTime());
  }

  /** The first ones after an instant, at most so many. */
  following(after: number, count: number): number[] {
    const found: number[] = [];
    for (let due = this.next(after); due !== null && found.length < count; due = this.next(due))
      found.push(due);
    return found;
  }
}

/** Cron patterns, with seconds; several where one cannot say it. */
function patternsOf({ recurrence, start, timeZone }: Timing): string[] {
  const { hour, minute, second } = zoneOf(timeZone).wallTime(start);
  const at = `${second} ${minute} ${hour}`;
  switch (recurrence.periodicity) {
    case 'once':
    case 'hourly':
      return [];
    case 'daily':
      return [`${at} * * *`];
    case 'weekly':
      return [`${at} * * ${recurrence.weekdays.join()}`];
    case 'monthly':
      return 'weekday' in recurrence
        ? [`${at} * * ${recurrence.weekday}#${recurrence.nth === 'last' ? 'L' : recurrence.nth}`]
        : dayPatterns(at, recurrence.day);
    case 'cron': {
      const fields = recurrence.expression.trim().split(/\s+/);
      if (fields.length !== CRON_FIELDS)
        throw new BadTiming(
          `"${recurrence.expression}" has ${fields.length} fields: minute, hour, day, month, weekday are wanted`,
        );
      return [`0 ${fields.join(' ')}`];
    }
  }
}

/** The longest month has 31 days, and only February fewer than 30. */
function dayPatterns(at: string, day: number | 'last'): string[] {
  if (day === 'last' || day === 31) return [`${at} L * *`];
  return day <= 28 ? [`${at} ${day} * *`] : [`${at} ${day} * *`, `${at} L 2 *`];
}

/** What is known of them is the same for all tasks. */
const zones = new Map<string, ZoneTime>();

/** @throws BadTiming */
export function zoneOf(timeZone: string): ZoneTime {
  try {
    const zone = zones.get(timeZone) ?? new ZoneTime(timeZone);
    zones.set(timeZone, zone);
    return zone;
  } catch {
    throw new BadTiming(`"${timeZone}" is no time zone; give one as Europe/Berlin or UTC`);
  }
}

function cronOf(pattern: string): Cron {
  try {
    return new Cron(pattern, { timezone: 'UTC', paused: true });
  } catch (error) {
    throw new BadTiming(`"${pattern.replace(/^0 /, '')}" is no cron expression: ${(error as Error).message}`);
  }
}
