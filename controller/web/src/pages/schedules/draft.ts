/** The settings of a scheduled task while they are edited, and as the API takes them. Pure. */
import type { Schedule } from '../../api/client.ts';
import { instantOf, wallTime } from '../../zone.ts';

export const ACTIONS = ['backup', 'verify', 'scan'] as const;
export const PERIODS = ['daily', 'weekly', 'monthly', 'hourly', 'once', 'cron'] as const;
export const WEEKDAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] as const;
export const WEEKS = ['first', 'second', 'third', 'fourth', 'last'] as const;
export const KEPT_PERIODS = ['last', 'hourly', 'daily', 'weekly', 'monthly', 'yearly'] as const;
export const FLAGS = [
  'compress',
  'hash_sum',
  'protected',
  'require_consistency',
  'exclude_iso',
  'hold_states',
] as const;

type Given = Omit<
  Schedule,
  | 'id'
  | 'entity_class'
  | 'next_run'
  | 'last_run'
  | 'warnings'
  | 'user'
  | 'created'
  | 'modified'
  | 'permissions'
  | 'start_date'
>;

export interface Draft extends Given {
  /** Of the start, as the clocks of its zone show it. */
  date: string;
  time: string;
}

export type Kind = 'full' | 'incremental' | 'increment';

export type SettingsBody = Partial<Omit<Given, 'enabled'> & Pick<Schedule, 'start_date'>>;

/** Of one that is not asked for a time. */
const MIDNIGHT = '00:00';
const TOMORROW_MS = 86_400_000;

/** Each night at two. */
export function newDraft(zone: string, now = Date.now()): Draft {
  const { date } = wallTime(new Date(now + TOMORROW_MS).toISOString(), zone);
  return {
    verbose_name: '',
    description: '',
    enabled: true,
    action: 'backup',
    periodicity: 'daily',
    every: 1,
    weekdays: [],
    month_day: 1,
    week: 'first',
    cron: '',
    time_zone: zone,
    date,
    time: '02:00',
    missed_run: 'run_once',
    entities: [],
    tags: [],
    nodes: [],
    all: true,
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
    keep: {},
    free_space_cleanup: false,
    keep_states: 0,
    keep_states_by: 'trim',
    verify_scope: 'newest',
  };
}

export function draftOf(schedule: Schedule): Draft {
  const {
    id: _id,
    entity_class: _class,
    next_run: _next,
    last_run: _last,
    warnings: _warnings,
    user: _user,
    created: _created,
    modified: _modified,
    permissions: _permissions,
    start_date,
    ...given
  } = schedule;
  return { ...given, ...wallTime(start_date, schedule.time_zone) };
}

export const isIncremental = ({ action, options }: Pick<Draft, 'action' | 'options'>): boolean =>
  action === 'backup' && (options.increment === true || options.backup !== undefined);

export function kindOf({ options }: Pick<Draft, 'options'>): Kind {
  if (options.increment === true || options.backup !== undefined) return 'increment';
  return options.can_be_incremental === true ? 'incremental' : 'full';
}

export function withKind(draft: Draft, kind: Kind): Draft {
  const { increment: _increment, can_be_incremental: _can, backup: _backup, ...others } = draft.options;
  const { hold_states: _hold, ...plain } = others;
  if (kind === 'full') return { ...draft, options: plain };
  return {
    ...draft,
    options: { ...others, ...(kind === 'increment' ? { increment: true } : { can_be_incremental: true }) },
  };
}

/**
 * Fields that have to be filled in first: a start that is left out would be another one than the form shows, and of a task that is about
 * nothing, or due at no time, there is nothing to look at.
 */
export function missingOf(draft: Draft): string[] {
  const { date, time, periodicity, month_day, weekdays, cron } = draft;
  const isByWeek = periodicity === 'monthly' && month_day === 0;
  return [
    ...(date === '' ? ['date'] : []),
    ...(time === '' && periodicity !== 'cron' ? ['time'] : []),
    ...(cron === '' && periodicity === 'cron' ? ['cron'] : []),
    ...(isByWeek && weekdays.length !== 1 ? ['weekdays'] : []),
    ...(draft.all || draft.entities.length + draft.tags.length + draft.nodes.length > 0 ? [] : ['entities']),
  ];
}

/**
 * As the API takes it: what does not belong to what was chosen goes back to its default.
 * @param before the task that is changed: its start stays to the second, unless it is moved
 */
export function bodyOf(draft: Draft, before?: Schedule): SettingsBody {
  const { date, time, enabled: _enabled, ...settings } = draft;
  const { periodicity, month_day, all, action } = settings;
  const isByWeek = periodicity === 'monthly' && month_day === 0;
  const start = instantOf({ date, time: time || MIDNIGHT }, settings.time_zone);
  return {
    ...settings,
    weekdays: periodicity === 'weekly' || isByWeek ? settings.weekdays : [],
    cron: periodicity === 'cron' ? settings.cron : '',
    ...(all ? { entities: [], tags: [], nodes: [] } : {}),
    ...(action === 'backup' ? backupOnly(draft) : NOT_OF_BACKUPS),
    ...startOf(draft, start, before),
  };
}

function startOf({ date, time, time_zone }: Draft, start: string | undefined, before: Schedule | undefined) {
  if (before !== undefined && before.time_zone === time_zone) {
    const shown = wallTime(before.start_date, time_zone);
    if (shown.date === date && shown.time === time) return { start_date: before.start_date };
  }
  return start === undefined ? {} : { start_date: start };
}

function backupOnly(draft: Draft) {
  if (isIncremental(draft)) return {};
  return { full_weekdays: [], increment_limit: 0, keep_states: 0 };
}

/** What is kept, and of what form, is said of backups only. */
const NOT_OF_BACKUPS = {
  options: {},
  full_weekdays: [],
  name_template: '',
  increment_limit: 0,
  bandwidth: 0,
  keep_count: 0,
  limit_days: 0,
  keep: Object.fromEntries(KEPT_PERIODS.map(period => [period, 0])),
  free_space_cleanup: false,
  keep_states: 0,
};
