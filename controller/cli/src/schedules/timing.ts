/** When a scheduled task is due, from the options that people give; pure. */
import { ZoneTime } from '@virtkeep/shared/zone-time';
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

/** The settings that say when; none when no option does. @throws CliError */
export function timingOf(options: TimingOptions, now: Date): Json {
  const given = KINDS.filter(kind => options[kind] !== undefined);
  if (given.length > 1) throw usage(`Give one of --${given.join(' and --')}.`);
  const [kind] = given;
  const zone = options.zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone;
  const named = options.zone === undefined && kind === undefined ? {} : { time_zone: zone };
  if (kind === undefined) return { ...named, ...startOf(options.start) };
  return { periodicity: kind, ...named, ...RULES[kind](options, zone, now), ...startOf(options.start) };
}

type Rule = (options: TimingOptions, zone: string, now: Date) => Json;

const RULES: Record<(typeof KINDS)[number], Rule> = {
  once: ({ once }) => startOf(once),
  hourly: ({ hourly }) => ({ every: hourly === true ? 1 : Number(hourly) }),
  daily: ({ daily }, zone, now) => at(daily!, zone, now),
  weekly: ({ weekly }, zone, now) => {
    const [days, time] = parts(weekly!, 'sun,wed@02:00');
    return { weekdays: weekdaysOf(days), ...at(time, zone, now) };
  },
  monthly: ({ monthly }, zone, now) => {
    const [day, time] = parts(monthly!, '1@02:00, last@02:00 or first-sun@02:00');
    return { ...monthDay(day), ...at(time, zone, now) };
  },
  cron: ({ cron }) => ({ cron: cron! }),
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

/** The next time that the zone's clocks show this. */
function at(time: string, zone: string, now: Date): Json {
  const match = TIME.exec(time);
  if (!match) throw usage(`"${time}" is no time of day, as 02:00.`);
  const clocks = zoneOf(zone);
  const today = clocks.wallTime(now.getTime());
  const on = (days: number) =>
    clocks.instantOf({
      ...today,
      day: today.day + days,
      hour: Number(match[1]),
      minute: Number(match[2]),
      second: 0,
    });
  const next = on(0) > now.getTime() ? on(0) : on(1);
  return { start_date: new Date(next).toISOString() };
}

function zoneOf(zone: string): ZoneTime {
  try {
    return new ZoneTime(zone);
  } catch {
    throw usage(`"${zone}" is no time zone; give one as Europe/Berlin or UTC.`);
  }
}

function startOf(text: string | undefined): Json {
  if (text === undefined) return {};
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) throw usage(`"${text}" is no date and time, as 2026-03-01T02:00.`);
  return { start_date: time.toISOString() };
}
