/**
 * A year of scheduled tasks of all periodicities in zones of all kinds, with a clock that jumps, ticks that come when they come, controllers
 * that die at any write and stay away for days. What is due is told by an oracle that knows no calendar but what Intl shows of an instant:
 * it walks through the hours of the year, looks at each minute of those in which a zone's clocks are changed, and goes through the days.
 * `VIRTKEEP_YEAR_TASKS` and `VIRTKEEP_YEAR_SEED` choose more of it and others.
 */
import { expect, test } from '@jest/globals';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import type { ScheduledRunRow, ScheduledTaskRow } from '../../store/schema.ts';
import { type DefinitionInput, definitionOf, dueTimesOf } from './definition.ts';
import type { MissedRun } from './due.ts';
import { WEEKDAYS } from './due-times.ts';
import { ScheduleWorld } from './test-kit.ts';

const TASKS = Number(process.env.VIRTKEEP_YEAR_TASKS ?? 10);
const SEED = Number(process.env.VIRTKEEP_YEAR_SEED ?? 1);
const ALL_TASKS = 500;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const BEGIN = Date.parse('2026-01-01T00:00:00Z');
const END = Date.parse('2027-01-01T00:00:00Z');
/** No clock shows more: what is due at the end of the year, or after it, is none of the oracle's. */
const LAST_TICK = END - 1;
const IN_TIME = 10 * MINUTE;
const ZONES = [
  'UTC',
  'Europe/Berlin',
  'Europe/Dublin',
  'Atlantic/Azores',
  'Africa/Casablanca',
  'Africa/Cairo',
  'Asia/Beirut',
  'Asia/Kolkata',
  'Asia/Kathmandu',
  'Asia/Tokyo',
  'Australia/Adelaide',
  'Australia/Lord_Howe',
  'Pacific/Auckland',
  'Pacific/Chatham',
  'Pacific/Apia',
  'America/Santiago',
  'America/St_Johns',
  'America/New_York',
  'America/Havana',
  'Antarctica/Troll',
];

/** From an instant on a zone's clocks are so far ahead of UTC, until the next one begins. */
interface Span {
  from: number;
  to: number;
  offset: number;
}

function spansOf(timeZone: string): Span[] {
  const format = new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' });
  const offsetAt = (instant: number) => Date.parse(`${format.format(instant).replace(' ', 'T')}Z`) - instant;
  const spans: Span[] = [];
  const see = (instant: number) => {
    const offset = offsetAt(instant);
    const last = spans.at(-1);
    if (last?.offset === offset) last.to = instant + MINUTE;
    else spans.push({ from: instant, to: instant + MINUTE, offset });
  };
  for (let hour = BEGIN - 2 * DAY; hour < END + 2 * DAY; hour += HOUR) {
    const isChanging = offsetAt(hour) !== offsetAt(hour + HOUR);
    for (let minute = 0; minute < HOUR; minute += isChanging ? MINUTE : HOUR) see(hour + minute);
    if (!isChanging) spans.at(-1)!.to = hour + HOUR;
  }
  return spans;
}

/** When clocks first show a time (as if it were of UTC), or are put past it. */
function instantOf(shown: number, spans: readonly Span[]): number {
  const showing = spans.find(({ from, to, offset }) => from + offset <= shown && shown < to + offset);
  if (showing) return shown - showing.offset;
  return spans.find(({ from, offset }) => from + offset > shown)!.from;
}

/** Days are midnights as if they were of UTC. */
type IsDay = (day: number) => boolean;
interface Rule {
  input: DefinitionInput;
  isDay: IsDay;
  /** Of the day, in minutes; empty: that of the start. */
  minutes: readonly number[];
  everyMs?: number;
}

const dateOf = (day: number) => new Date(day).getUTCDate();
const weekdayOf = (day: number) => WEEKDAYS[(new Date(day).getUTCDay() + 6) % 7]!;
const lastOfMonth = (day: number) => {
  const date = new Date(day);
  return new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 0)).getUTCDate();
};
const any: IsDay = () => true;
const steps = (from: number, to: number, by: number) =>
  Array.from({ length: Math.floor((to - from) / by) + 1 }, (_, index) => from + index * by);

const CRONS: Rule[] = [
  { input: { cron: '30 2 * * *' }, isDay: any, minutes: [150] },
  { input: { cron: '0 0 * * *' }, isDay: any, minutes: [0] },
  {
    input: { cron: '*/20 1-3 * * sun' },
    isDay: day => weekdayOf(day) === 'sun',
    minutes: steps(60, 239, 20),
  },
  {
    input: { cron: '15 */6 * * 1-5' },
    isDay: day => !['sat', 'sun'].includes(weekdayOf(day)),
    minutes: steps(15, 1439, 360),
  },
  { input: { cron: '0 3 1,15 * *' }, isDay: day => [1, 15].includes(dateOf(day)), minutes: [180] },
];

/** @param random as of {@link seededRandom} */
function ruleOf(random: (below: number) => number): Rule {
  const oneOf = <T>(things: readonly T[]): T => things[random(things.length)]!;
  const own = { minutes: [] };
  const weekday = oneOf(WEEKDAYS);
  switch (oneOf(['once', 'hourly', 'daily', 'daily', 'weekly', 'day', 'nth', 'cron'] as const)) {
    case 'once':
      return { input: { periodicity: 'once' }, isDay: any, minutes: [], everyMs: Number.POSITIVE_INFINITY };
    case 'hourly': {
      const every = oneOf([6, 7, 12, 24, 36]);
      return { input: { periodicity: 'hourly', every }, isDay: any, minutes: [], everyMs: every * HOUR };
    }
    case 'daily':
      return { input: { periodicity: 'daily' }, isDay: any, ...own };
    case 'weekly': {
      const weekdays = WEEKDAYS.filter((_, index) => index % 3 === random(3) || index === 6);
      return {
        input: { periodicity: 'weekly', weekdays },
        isDay: day => weekdays.includes(weekdayOf(day)),
        ...own,
      };
    }
    case 'day': {
      const month_day = oneOf([1, 15, 28, 29, 30, 31]);
      return {
        input: { periodicity: 'monthly', month_day },
        isDay: day => dateOf(day) === Math.min(month_day, lastOfMonth(day)),
        ...own,
      };
    }
    case 'nth': {
      const nth = random(5);
      return {
        input: {
          periodicity: 'monthly',
          weekdays: [weekday],
          week: (['first', 'second', 'third', 'fourth', 'last'] as const)[nth]!,
        },
        isDay: day =>
          weekdayOf(day) === weekday &&
          (nth === 4 ? dateOf(day) + 7 > lastOfMonth(day) : Math.ceil(dateOf(day) / 7) === nth + 1),
        ...own,
      };
    }
    case 'cron': {
      const rule = oneOf(CRONS);
      return { ...rule, input: { periodicity: 'cron', ...rule.input } };
    }
  }
}

interface Planned {
  input: DefinitionInput;
  /** All of the year, in order. */
  due: number[];
}

function plannedTasks(count: number, random: (below: number) => number): Planned[] {
  const spans = new Map(ZONES.map(zone => [zone, spansOf(zone)]));
  return Array.from({ length: count }, (_, index) => {
    const time_zone = ZONES[index % ZONES.length]!;
    const rule = ruleOf(random);
    // most at hours in which clocks are changed somewhere
    const minute = random(4) === 0 ? random(1440) : random(16) * 15;
    const startDay = BEGIN + (1 + random(random(4) === 0 ? 300 : 60)) * DAY;
    const start = instantOf(startDay + minute * MINUTE, spans.get(time_zone)!);
    const missed_run: MissedRun = random(2) === 0 ? 'run_once' : 'skip';
    return {
      input: {
        ...rule.input,
        verbose_name: `${index} ${time_zone} ${JSON.stringify(rule.input)}`,
        start_date: new Date(start).toISOString(),
        time_zone,
        missed_run,
      },
      due: dueOf(rule, start, minute, spans.get(time_zone)!),
    };
  });
}

function dueOf({ isDay, minutes, everyMs }: Rule, start: number, own: number, spans: Span[]): number[] {
  const due = new Set<number>();
  if (everyMs === undefined) {
    const ofDay = minutes.length === 0 ? [own] : minutes;
    for (let day = BEGIN - DAY; day <= END; day += DAY)
      if (isDay(day)) for (const minute of ofDay) due.add(instantOf(day + minute * MINUTE, spans));
  } else if (everyMs < END) for (let at = start; at < END; at += everyMs) due.add(at);
  else due.add(start);
  return [...due].filter(at => at >= start && at < END).sort((a, b) => a - b);
}

const written = (instants: number[]) => instants.map(instant => new Date(instant).toISOString());

test(`${ALL_TASKS} tasks are due when the oracle says (seed ${SEED})`, () => {
  for (const { input, due } of plannedTasks(ALL_TASKS, seededRandom(SEED))) {
    const definition = definitionOf({ ...input, all: true }, undefined, {
      timeZone: 'UTC',
      now: new Date(BEGIN),
    });
    const found = dueTimesOf(definition)
      .following(BEGIN, due.length + 1)
      .filter(at => at < END);
    expect({ input, due: written(found) }).toEqual({ input, due: written(due) });
  }
});

/** What the world and its clock do to the controller, and when it looked at what is due. */
class Year {
  readonly world: ScheduleWorld;
  readonly ticks: { now: number; hasLived: boolean }[] = [];
  /** Ticks after which a run may still go on. */
  readonly slow = new Set<number>();
  readonly #random: (below: number) => number;
  /** How far the controller's clock is ahead. */
  #skew = 0;
  /** Of what is due, the first that is not past. */
  #next = 0;
  deaths = 0;
  jumps = 0;

  readonly #due: readonly number[];

  /** @param due of all tasks, in order */
  constructor(world: ScheduleWorld, due: readonly number[], random: (below: number) => number) {
    this.world = world;
    this.#due = due;
    this.#random = random;
  }

  async pass(): Promise<void> {
    for (let time = BEGIN + HOUR; time < END; time = await this.#pause(time)) {
      await this.#endSome();
      await this.#tick(Math.min(time + this.#skew, LAST_TICK));
    }
    await this.#end();
  }

  /**
   * The next tick: mostly shortly before or after something is due, sometimes after days, or with another clock.
   * @param time by the right clock
   */
  async #pause(time: number): Promise<number> {
    const fate = this.#random(1500);
    if (fate < 60) {
      this.jumps += 1;
      this.#skew = (this.#random(3) - 1) * 3 * HOUR;
    }
    if (fate < 30) await this.world.restart();
    if (fate < 3) return time + (1 + this.#random(4)) * DAY;
    while ((this.#due[this.#next] ?? END) <= time + this.#skew) this.#next += 1;
    const untilDue = (this.#due[this.#next] ?? END) - time - this.#skew;
    const late = (this.#random(20) - 4) * MINUTE + this.#random(1000);
    return time + Math.max(MINUTE, Math.min(untilDue, DAY) + late);
  }

  async #tick(now: number): Promise<void> {
    const { world } = this;
    world.endsAtOnce = this.#random(30) > 0;
    if (!world.endsAtOnce) this.slow.add(now);
    if (this.#random(25) === 0) world.mortality.writesLeft = this.#random(40);
    await world.tick(now);
    const hasLived = world.mortality.writesLeft >= 0;
    this.ticks.push({ now, hasLived });
    world.mortality.writesLeft = Number.POSITIVE_INFINITY;
    if (hasLived) return;
    this.deaths += 1;
    this.slow.add(now);
    await world.restart();
  }

  async #endSome(): Promise<void> {
    if (this.#random(8) > 0) return;
    for (const task of await this.world.tasks.unfinished())
      if (task.row.is_multitask === 0) await this.world.nodeEnds(task);
    await this.world.scheduler.settled();
  }

  async #end(): Promise<void> {
    await this.world.restart();
    this.world.endsAtOnce = true;
    await this.#tickSurely(LAST_TICK);
    for (let round = 0; round < 3; round += 1) {
      for (const task of await this.world.tasks.unfinished())
        if (task.row.is_multitask === 0) await this.world.nodeEnds(task);
      await this.world.scheduler.settled();
    }
  }

  async #tickSurely(now: number): Promise<void> {
    await this.world.tick(now);
    this.ticks.push({ now, hasLived: true });
  }

  /** The times at which a due time may have been taken: by the first tick after it, or by one that follows one that died. */
  takersOf(due: number): number[] {
    const first = this.ticks.findIndex(({ now }) => now >= due);
    const takers: number[] = [];
    for (const { now, hasLived } of this.ticks.slice(first)) {
      if (now < due) continue;
      takers.push(now);
      if (hasLived) break;
    }
    return takers;
  }
}

/** Each due time belongs to one run, as its own or as one that it missed, by the rule of the task. */
function checkRuns({ input, due }: Planned, runs: readonly ScheduledRunRow[], year: Year): void {
  const found: number[] = [];
  const sorted = runs.toSorted((a, b) => (a.due_time! < b.due_time! ? -1 : 1));
  let isOpen = false;
  for (const { status, due_time, missed_count, created } of sorted) {
    const own = Date.parse(due_time!);
    const at = due.indexOf(own);
    const count = missed_count + Number(status !== 'MISSED');
    const its = due.slice(at + 1 - count, at + 1);
    found.push(...its);
    const taken = Date.parse(created);
    const told = JSON.stringify({ input, status, due_time, missed_count, created });
    if (at < 0 || its.length !== count) throw new Error(`not due so: ${told}`);
    for (const one of its)
      if (!year.takersOf(one).includes(taken)) throw new Error(`not by the first tick: ${told}`);
    const isLate = taken - own > IN_TIME;
    if ((status === 'MISSED') !== (isLate && input.missed_run === 'skip'))
      throw new Error(`not the task's rule for what is missed: ${told}`);
    if (status === 'SKIPPED' && !isOpen) throw new Error(`nothing else ran: ${told}`);
    if (status === 'SUCCESS') isOpen = year.slow.has(taken);
    else if (status !== 'SKIPPED' && status !== 'MISSED') throw new Error(`no outcome: ${told}`);
  }
  expect({ input, due: written(found) }).toEqual({ input, due: written(due) });
}

/** Each run that was begun has backed its VM up, once. */
async function checkWork(world: ScheduleWorld): Promise<void> {
  const runs = await world.disk.selectFrom('scheduled_runs').select(['id', 'status']).execute();
  const begun = runs.filter(({ status }) => status === 'SUCCESS').map(({ id }) => id);
  const tasks = await world.disk.selectFrom('tasks').select(['id', 'name', 'parent']).execute();
  const of = (name: string) => tasks.filter(task => task.name === name);
  expect(of('scheduled_run').map(({ id }) => id)).toHaveLength(begun.length);
  expect(new Set(of('backup').map(({ parent }) => parent))).toEqual(new Set(begun));
  expect(of('backup')).toHaveLength(begun.length);
}

test(`a year of ${TASKS} tasks: each due time once, or missed by the rule (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  const planned = plannedTasks(TASKS, random);
  const world = await ScheduleWorld.open(new Date(BEGIN).toISOString());
  world.vms.splice(1);
  const rows: ScheduledTaskRow[] = [];
  for (const { input } of planned) rows.push(await world.add(input));
  const due = planned.flatMap(one => one.due).sort((a, b) => a - b);
  const year = new Year(world, due, random);
  await year.pass();
  const all = await world.disk.selectFrom('scheduled_runs').selectAll().execute();
  const byTask = Map.groupBy(all, ({ scheduled_task_id }) => scheduled_task_id);
  for (const [index, one] of planned.entries()) checkRuns(one, byTask.get(rows[index]!.id) ?? [], year);
  await checkWork(world);
  const counts = Map.groupBy(all, ({ status }) => status);
  expect({ seen: [...counts.keys()].sort() }).toEqual({ seen: ['MISSED', 'SKIPPED', 'SUCCESS'] });
  expect(Math.min(year.deaths, year.jumps)).toBeGreaterThan(20);
  await world.close();
});
