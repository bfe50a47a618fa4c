/**
 * What a scheduled task is: its settings, checked and with their defaults; pure. The settings are those of the specification's 2.4, with
 * the creation options of 2.2. A run keeps a copy of them: a change of the task does not disturb it.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { RetentionRules } from '../retention/plan.ts';
import { PERIODS, type Period } from '../retention/plan.ts';
import type { MissedRun } from './due.ts';
import { BadTiming, DueTimes, type Recurrence, WEEKDAYS, type Weekday, zoneOf } from './due-times.ts';
import { parseName } from './name-template.ts';

export const ACTIONS = ['backup', 'verify', 'scan'] as const;
export type ScheduledAction = (typeof ACTIONS)[number];
export const ENTITY_CLASSES = ['domain', 'data_pool'] as const;
export type EntityClass = (typeof ENTITY_CLASSES)[number];
/** What a task is about follows from what it does. */
export const ENTITY_CLASS_OF: Readonly<Record<ScheduledAction, EntityClass>> = {
  backup: 'domain',
  verify: 'domain',
  scan: 'data_pool',
};

export const PERIODICITIES = ['once', 'hourly', 'daily', 'weekly', 'monthly', 'cron'] as const;
export const WEEKS = ['first', 'second', 'third', 'fourth', 'last'] as const;
export const WINDOW_ACTIONS = ['continue', 'cancel'] as const;
export const STATE_RULES = ['trim', 'new_archive'] as const;
export const VERIFY_SCOPES = ['newest', 'all'] as const;
export const MISSED_RUNS: readonly MissedRun[] = ['run_once', 'skip'];

/** The creation options of the specification's 2.2, and the further ones of a backup by hand. */
export interface BackupChoices {
  exclude_iso?: boolean;
  can_be_incremental?: boolean;
  /** One backup file that is extended each time; of a task for one VM only. */
  backup?: string;
  increment?: boolean;
  datapool?: string;
  hash_sum?: boolean;
  compress?: boolean;
  hold_states?: boolean;
  protected?: boolean;
  require_consistency?: boolean;
}

/** Which things a task is about; resolved anew at each run. */
export interface Selection {
  /** VMs, or data pools of a scan. */
  entities: string[];
  /** Ids of tags. */
  tags: string[];
  nodes: string[];
  all: boolean;
  exclude_entities: string[];
  exclude_tags: string[];
}

export interface ScheduleDefinition extends Selection {
  verbose_name: string;
  description: string;
  action: ScheduledAction;
  periodicity: (typeof PERIODICITIES)[number];
  /** Of hourly ones: every so many hours. */
  every: number;
  /** Of weekly ones; of monthly ones with `week` the one weekday. */
  weekdays: Weekday[];
  /** Of monthly ones, 1–31; a day that a month does not have is its last. 0: by `week`. */
  month_day: number;
  week: (typeof WEEKS)[number];
  /** Five fields; empty for other periodicities. */
  cron: string;
  time_zone: string;
  /** RFC 3339; the time of day of all runs but those by cron. */
  start_date: string;
  missed_run: MissedRun;
  options: BackupChoices;
  /** Weekdays whose backup is a full one, instead of an increment. */
  full_weekdays: Weekday[];
  /** Descriptions of its backups are made after it; empty: they have none. */
  name_template: string;
  /** After so many increments all saved states of the VM are deleted and the next backup is a full one; 0: never. */
  increment_limit: number;
  /** States that people made stay when the limit is reached. */
  keep_manual_states: boolean;
  /** VMs at a time; 0: all at once. */
  parallel_limit: number;
  /** HH:MM in the time zone: what has not begun by then does not; empty: no window. */
  window_end: string;
  window_action: (typeof WINDOW_ACTIONS)[number];
  /** Bytes per second of all its backups together; 0: no limit. */
  bandwidth: number;
  /** Further attempts after a failure that may pass. */
  retries: number;
  /** Before the first of them; doubled before each further one. */
  retry_delay_s: number;
  /** 0: however many there are. */
  keep_count: number;
  /** Days of 24 hours; 0: of any age. */
  limit_days: number;
  /** By period; all 0: this rule is not used. */
  keep: Record<Period, number>;
  free_space_cleanup: boolean;
  /** Restore points that an incremental archive holds at most; 0: all. */
  keep_states: number;
  keep_states_by: (typeof STATE_RULES)[number];
  /** Of verify: the newest good backup of each VM, or all. */
  verify_scope: (typeof VERIFY_SCOPES)[number];
}

export type DefinitionInput = Partial<Omit<ScheduleDefinition, 'keep'>> & {
  keep?: Partial<Record<Period, number>>;
  /** Only what the action is about anyway. */
  entity_class?: EntityClass;
};

const NONE_KEPT = Object.fromEntries(PERIODS.map(period => [period, 0])) as Record<Period, number>;

export const DEFAULTS: Omit<ScheduleDefinition, 'verbose_name' | 'start_date' | 'time_zone'> = {
  description: '',
  action: 'backup',
  periodicity: 'daily',
  every: 1,
  weekdays: [],
  month_day: 0,
  week: 'first',
  cron: '',
  missed_run: 'run_once',
  entities: [],
  tags: [],
  nodes: [],
  all: false,
  exclude_entities: [],
  exclude_tags: [],
  options: {},
  full_weekdays: [],
  name_template: '',
  increment_limit: 0,
  keep_manual_states: false,
  parallel_limit: 0,
  window_end: '',
  window_action: 'continue',
  bandwidth: 0,
  retries: 0,
  retry_delay_s: 300,
  keep_count: 0,
  limit_days: 0,
  keep: NONE_KEPT,
  free_space_cleanup: false,
  keep_states: 0,
  keep_states_by: 'trim',
  verify_scope: 'newest',
};

const TIME_OF_DAY = /^([01]\d|2[0-3]):([0-5]\d)$/;

/**
 * The settings with all that is not given as it was before, or as by default.
 * @param context the zone and the time of a task that names none
 * @throws VirtkeepError invalid_field, missing_field, conflicting_fields: the settings as a whole make no sense
 */
export function definitionOf(
  input: DefinitionInput,
  before: ScheduleDefinition | undefined,
  context: { timeZone: string; now: Date },
): ScheduleDefinition {
  if (input.verbose_name === undefined && before === undefined)
    throw new VirtkeepError('missing_field', { field: 'verbose_name' });
  const base = before ?? {
    ...DEFAULTS,
    verbose_name: '',
    time_zone: context.timeZone,
    start_date: nextWholeMinute(context.now),
  };
  const { keep, options, entity_class, ...plain } = input;
  const given = Object.fromEntries(Object.entries(plain).filter(([, value]) => value !== undefined));
  const merged: ScheduleDefinition = {
    ...base,
    ...given,
    keep: { ...base.keep, ...keep },
    options: options ?? base.options,
  };
  const whole = { ...merged, start_date: new Date(merged.start_date).toISOString() };
  checkClass(entity_class, whole);
  check(whole);
  return whole;
}

function nextWholeMinute(now: Date): string {
  return new Date(Math.ceil(now.getTime() / 60_000) * 60_000).toISOString();
}

function checkClass(given: EntityClass | undefined, { action }: ScheduleDefinition): void {
  const entityClass = ENTITY_CLASS_OF[action];
  if (given !== undefined && given !== entityClass)
    throw invalid('entity_class', `is ${given}, and the action ${action} is about ${entityClass}`);
}

function check(definition: ScheduleDefinition): void {
  checkTiming(definition);
  checkSelection(definition);
  checkOptions(definition);
  if (definition.window_end !== '' && !TIME_OF_DAY.test(definition.window_end))
    throw invalid('window_end', 'is no time of day, as 06:00');
  parseName(definition.name_template);
}

/** @throws invalid_field naming the field that the calendar cannot be made of */
function checkTiming(definition: ScheduleDefinition): void {
  const { periodicity, weekdays, month_day, cron } = definition;
  if (periodicity === 'monthly' && month_day === 0 && weekdays.length !== 1)
    throw invalid('weekdays', 'names one weekday for a monthly task, unless month_day is given');
  if (periodicity === 'cron' && cron === '') throw new VirtkeepError('missing_field', { field: 'cron' });
  if (periodicity !== 'cron' && cron !== '')
    throw invalid('cron', `is for the periodicity cron only, and this one is ${periodicity}`);
  try {
    dueTimesOf(definition);
  } catch (error) {
    if (!(error instanceof BadTiming)) throw error;
    const field = /time zone/.test(error.message)
      ? 'time_zone'
      : periodicity === 'cron'
        ? 'cron'
        : 'start_date';
    throw invalid(field, `cannot be used: ${error.message}`);
  }
}

function checkSelection({ action, entities, tags, nodes, all }: ScheduleDefinition): void {
  if (!all && entities.length + tags.length + nodes.length === 0)
    throw invalid('entities', 'names nothing; name VMs, tags or nodes, or set all');
  if (all && entities.length + tags.length + nodes.length > 0)
    throw new VirtkeepError('conflicting_fields', { first: 'all', second: 'entities', field: 'all' });
  if (action === 'scan' && tags.length > 0 && entities.length > 0)
    throw new VirtkeepError('conflicting_fields', { first: 'tags', second: 'entities', field: 'tags' });
}

function checkOptions(definition: ScheduleDefinition): void {
  const { action, options, entities, tags, nodes, all, increment_limit, full_weekdays } = definition;
  if (action !== 'backup') {
    if (Object.keys(options).length > 0)
      throw invalid('options', `are those of backups, and not of ${action}`);
    const rule = RETENTION_FIELDS.find(field => isSet(definition, field));
    if (rule !== undefined) throw invalid(rule, `is for backups, and not for ${action}`);
    return;
  }
  const isIncremental = incremental(definition);
  if (options.backup !== undefined) {
    if (options.datapool !== undefined)
      throw new VirtkeepError('conflicting_fields', {
        first: 'datapool',
        second: 'backup',
        field: 'options',
      });
    if (entities.length !== 1 || tags.length > 0 || nodes.length > 0 || all)
      throw invalid(
        'options',
        'name a backup to extend, which is one VM\'s: name this VM in "entities" and nothing else',
      );
  }
  if (options.hold_states && !isIncremental && !options.can_be_incremental)
    throw invalid('options', 'hold_states needs increment, backup or can_be_incremental');
  if (increment_limit > 0 && !isIncremental)
    throw invalid(
      'increment_limit',
      'needs options.increment or options.backup: without there are no increments',
    );
  if (full_weekdays.length > 0 && !isIncremental)
    throw invalid(
      'full_weekdays',
      'needs options.increment or options.backup: without every backup is a full one',
    );
  if (definition.keep_states > 0 && !isIncremental)
    throw invalid(
      'keep_states',
      'needs options.increment or options.backup: without a file has one restore point',
    );
}

const RETENTION_FIELDS = [
  'increment_limit',
  'keep_count',
  'limit_days',
  'keep',
  'free_space_cleanup',
  'keep_states',
  'full_weekdays',
  'name_template',
  'bandwidth',
] as const;

function isSet(definition: ScheduleDefinition, field: (typeof RETENTION_FIELDS)[number]): boolean {
  return JSON.stringify(definition[field]) !== JSON.stringify(DEFAULTS[field]);
}

const invalid = (field: string, reason: string) => new VirtkeepError('invalid_field', { field, reason });

/** The settings of a task, or those that a run began with. */
export const definitionIn = ({ definition_json }: { definition_json: string }): ScheduleDefinition =>
  JSON.parse(definition_json) as ScheduleDefinition;

/** Its backups extend what was made before, when they can. */
export function incremental({ options }: Pick<ScheduleDefinition, 'options'>): boolean {
  return options.increment === true || options.backup !== undefined;
}

/** @throws BadTiming */
export function dueTimesOf(definition: ScheduleDefinition): DueTimes {
  const { time_zone: timeZone, start_date } = definition;
  return new DueTimes({ recurrence: recurrenceOf(definition), start: Date.parse(start_date), timeZone });
}

function recurrenceOf(definition: ScheduleDefinition): Recurrence {
  const { periodicity, every, weekdays, month_day, week, cron, start_date, time_zone } = definition;
  switch (periodicity) {
    case 'hourly':
      return { periodicity, hours: every };
    case 'weekly':
      return {
        periodicity,
        weekdays: weekdays.length > 0 ? weekdays : [weekdayAt(Date.parse(start_date), time_zone)],
      };
    case 'monthly': {
      if (month_day > 0) return { periodicity, day: month_day };
      const nth = WEEKS.indexOf(week) + 1;
      return { periodicity, nth: week === 'last' ? 'last' : (nth as 1 | 2 | 3 | 4), weekday: weekdays[0]! };
    }
    case 'cron':
      return { periodicity, expression: cron };
    default:
      return { periodicity };
  }
}

/** The weekday that a zone's calendar shows. @param instant ms since 1970 */
export function weekdayAt(instant: number, timeZone: string): Weekday {
  const { year, month, day } = zoneOf(timeZone).wallTime(instant);
  const fromSunday = new Date(Date.UTC(year, month - 1, day)).getUTCDay();
  return WEEKDAYS[(fromSunday + 6) % 7]!;
}

/** By the calendar alone; whether an increment is possible then is decided when it begins. */
export function modeOn(definition: ScheduleDefinition, due: number): 'full' | 'increment' | null {
  if (definition.action !== 'backup') return null;
  if (!incremental(definition)) return 'full';
  return definition.full_weekdays.includes(weekdayAt(due, definition.time_zone)) ? 'full' : 'increment';
}

/** When the window of a run ends, in ms since 1970: the first such time of day after its due time; null: never. */
export function windowEndOf({ window_end, time_zone }: ScheduleDefinition, due: number): number | null {
  const match = TIME_OF_DAY.exec(window_end);
  if (match === null) return null;
  const recurrence = {
    periodicity: 'cron',
    expression: `${Number(match[2])} ${Number(match[1])} * * *`,
  } as const;
  return new DueTimes({ recurrence, start: due, timeZone: time_zone }).next(due);
}

/** Null: the task deletes nothing by these rules. */
export function retentionRulesOf(definition: ScheduleDefinition): RetentionRules | null {
  const { keep_count, limit_days, keep, time_zone: timeZone } = definition;
  const byPeriod = PERIODS.some(period => keep[period] > 0);
  if (keep_count === 0 && limit_days === 0 && !byPeriod) return null;
  return {
    keepCount: keep_count || null,
    limitDays: limit_days || null,
    keep: byPeriod ? keep : null,
    timeZone,
  };
}
