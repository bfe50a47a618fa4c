/** When a scheduled task is due, from the options that people give; pure. */
import { type WallTime, ZoneTime } from '@virtkeep/shared/zone-time';
import type { Json } from '../client.ts';
import { CliError, ExitCode } from '../exit-codes.ts';

export interface TimingOptions {
  once?: string;
  hourly?: string | true;
  daily?: string;
  weekly?: string;
  monthly?: string;
  cron?: string;
  zone?: string;
  start?: string;
}

const KINDS = ['once', 'hourly', 'daily', 'weekly', 'monthly', 'cron'] as const;
const WEEKDAYS = 'mon tue wed thu fri sat sun'.split(' ');
const WEEKS = ['first', 'second', 'third', 'fourth', 'last'];
const TIME = /^([01]?\d|2[0-3]):([0-5]\d)$/;

const usage = (text: string) => new CliError(text, ExitCode.usage);

/** A list of weekdays: mon,thu, or mon-fri. @throws CliError */
export function weekdaysOf(text: string): string[] {
  return text.split(',').flatMap(part => {
    const [from, to = from] = part
      .trim()
      .toLowerCase()
      .split('-')
      .map(name => WEEKDAYS.indexOf(name.slice(0, 3))) as [number, number?];
    if (from < 0 || to! < from) throw usage(`"${part}" is no weekday, nor a row of them: mon, thu, mon-fri.`);
    return WEEKDAYS.slice(from, to! + 1);
  });
}

/** What a task is set to already; only what says when it is due. */
export interface PresentTiming {
  periodicity?: string;
  start_date?: string;
  time_zone?: string;
}

/** The settings that say when; none when no option does. @param before of the task that is changed @throws CliError */
export function timingOf(options: TimingOptions, now: Date, before: PresentTiming = {}): Json {
  const given = KINDS.filter(kind => options[kind] !== undefined);
  if (given.length > 1) throw usage(`Give one of --${given.join(' and --')}.`);
  const [kind] = given;
  const zone = options.zone ?? before.time_zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone;
  const named = options.zone === undefined && kind === undefined ? {} : { time_zone: zone };
  if (kind === undefined) return { ...named, ...laterStart(options.start, zone, before) };
  const start = options.start === undefined ? undefined : instantOf(options.start, zone);
  const noCron = before.periodicity === 'cron' && kind !== 'cron' ? { cron: '' } : {};
  return { periodicity: kind, ...noCron, ...named, ...RULES[kind](options, { zone, start, now }) };
}

/** Of a task that stays as it is otherwise. At what time of day it runs says its start, and is no other by a later one. */
function laterStart(
  text: string | undefined,
  zone: string,
  { periodicity, start_date, time_zone = zone }: PresentTiming,
): Json {
  if (text === undefined) return {};
  const start = instantOf(text, zone);
  const hasTimeOfDay = periodicity === 'daily' || periodicity === 'weekly' || periodicity === 'monthly';
  if (!hasTimeOfDay || !start_date) return startAt(start);
  return startAt(nextTime(zoneOf(time_zone).wallTime(Date.parse(start_date)), zone, start));
}

interface When {
  zone: string;
  /** Nothing is due before; ms since 1970. */
  start: number | undefined;
  now: Date;
}

type Rule = (options: TimingOptions, when: When) => Json;

const RULES: Record<(typeof KINDS)[number], Rule> = {
  once: ({ once }, { zone }) => startAt(instantOf(once!, zone)),
  hourly: ({ hourly }, { start }) => ({ every: hourly === true ? 1 : Number(hourly), ...startAt(start) }),
  daily: ({ daily }, when) => at(daily!, when),
  weekly: ({ weekly }, when) => {
    const [days, time] = parts(weekly!, 'sun,wed@02:00');
    return { weekdays: weekdaysOf(days), ...at(time, when) };
  },
  monthly: ({ monthly }, when) => {
    const [day, time] = parts(monthly!, '1@02:00, last@02:00 or first-sun@02:00');
    return { ...monthDay(day), ...at(time, when) };
  },
  cron: ({ cron }, { start }) => ({ cron: cron!, ...startAt(start) }),
};

function parts(text: string, example: string): [string, string] {
  const [days, time, more] = text.split('@');
  if (!days || !time || more !== undefined) throw usage(`"${text}" is not of the form ${example}.`);
  return [days, time];
}

function monthDay(text: string): Json {
  const [week, weekday] = text.split('-');
  if (weekday !== undefined && WEEKS.includes(week!))
    return { week: week!, weekdays: weekdaysOf(weekday), month_day: 0 };
  const day = text === 'last' ? 31 : Number(text);
  if (!Number.isInteger(day) || day < 1 || day > 31)
    throw usage(`"${text}" is no day of a month: 1 to 31, last, first-sun.`);
  return { month_day: day, weekdays: [] };
}

/** The next time from its start on that the zone's clocks show this. */
function at(time: string, { zone, start, now }: When): Json {
  const match = TIME.exec(time);
  if (!match) throw usage(`"${time}" is no time of day, as 02:00.`);
  const shown = { hour: Number(match[1]), minute: Number(match[2]) };
  if (start !== undefined) return startAt(nextTime(shown, zone, start));
  // what was due before the task is made is not owed: so the next run may be on a day that has no such time
  return startAt(nextTime(shown, zone, now.getTime(), -1));
}

/**
 * ms since 1970, of a time that the clocks do show: the runs have their time of day from their start, and one that is left out on the start's
 * day, when clocks go forward, would be another one for ever.
 * @param otherDay from the one that is passed over for that
 */
function nextTime(
  { hour, minute }: Pick<WallTime, 'hour' | 'minute'>,
  zone: string,
  from: number,
  otherDay: 1 | -1 = 1,
): number {
  const clocks = zoneOf(zone);
  const today = clocks.wallTime(from);
  const on = (days: number) => clocks.instantOf({ ...today, day: today.day + days, hour, minute, second: 0 });
  const isShown = (instant: number) => {
    const shown = clocks.wallTime(instant);
    return shown.hour === hour && shown.minute === minute;
  };
  const days = on(0) >= from ? 0 : 1;
  return isShown(on(days)) ? on(days) : on(days + otherDay);
}

function zoneOf(zone: string): ZoneTime {
  try {
    return new ZoneTime(zone);
  } catch {
    throw usage(`"${zone}" is no time zone; give one as Europe/Berlin or UTC.`);
  }
}

const LOCAL_DATE = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?$/;
const WITH_OFFSET = /\d\d:\d\d.*(?:Z|GMT|UTC|[+-]\d\d(?::?\d\d)?)$/i;

/** ms since 1970. Without an offset it is a date and time of the zone. */
function instantOf(text: string, zone: string): number {
  const isLocal = LOCAL_DATE.test(text);
  // as if the zone were UTC, which its clocks then show
  const written = isLocal
    ? `${text.replace(' ', 'T')}${text.length > 10 ? '' : 'T00:00'}Z`
    : text.replace(/([+-]\d\d)$/, '$1:00');
  const read = isLocal || WITH_OFFSET.test(text) ? Date.parse(written) : Number.NaN;
  if (Number.isNaN(read)) throw usage(`"${text}" is no date and time, as 2026-03-01T02:00.`);
  return isLocal ? zoneOf(zone).instantOf(new ZoneTime('UTC').wallTime(read)) : read;
}

const startAt = (instant: number | undefined): Json =>
  instant === undefined ? {} : { start_date: new Date(instant).toISOString() };
