/** Scheduled tasks: their settings as they are given and told, their runs, and what they would do. */
import Type, { type TProperties } from 'typebox';
import { PERIODS } from '../../services/retention/plan.ts';
import {
  ACTIONS,
  DEFAULTS,
  ENTITY_CLASSES,
  MISSED_RUNS,
  PERIODICITIES,
  STATE_RULES,
  VERIFY_SCOPES,
  WEEKS,
  WINDOW_ACTIONS,
} from '../../services/schedules/definition.ts';
import { WEEKDAYS } from '../../services/schedules/due-times.ts';
import { NAME_WORDS } from '../../services/schedules/name-template.ts';
import { WAIT_REASONS } from '../../services/schedules/queue.ts';
import { PART_STATUSES, RUN_STATUSES } from '../../services/schedules/run-outcome.ts';
import { STORY } from '../document/story.ts';
import {
  Bytes,
  described,
  flag,
  GivenUuid,
  integer,
  Name,
  named,
  nullable,
  oneOf,
  Permissions,
  part,
  record,
  Text,
  Time,
  text,
  texts,
  truth,
  Uuid,
} from './common.ts';
import { Failure } from './task.ts';

const MAX_LISTED = 10_000;
const ids = (description: string) =>
  Type.Array(GivenUuid, { maxItems: MAX_LISTED, uniqueItems: true, description });
const days = (description: string) =>
  Type.Array(oneOf(WEEKDAYS), { maxItems: WEEKDAYS.length, uniqueItems: true, description });
const number = (description: string, minimum: number, maximum: number) =>
  Type.Integer({ minimum, maximum, description });

const Options = part(
  {
    exclude_iso: flag('leave ISO images out'),
    can_be_incremental: flag('it can be extended later'),
    backup: Type.Optional(
      described(GivenUuid, 'extend this file as long as it can be extended; of a task for one VM'),
    ),
    increment: flag('extend the newest backup that can be extended, else make a new one that can'),
    datapool: Type.Optional(described(GivenUuid, "default: the base data pool of each VM's node")),
    hash_sum: flag('record a SHA-256 of every member; the run verifies what it has made'),
    compress: flag('zstd'),
    hold_states: flag('keep all states that increments made on the VM'),
    protected: flag('it cannot be removed until unprotected'),
    require_consistency: flag('fail rather than back up a running guest that was not quiesced'),
  },
  'as in the body of a backup by hand',
);

const Keep = Type.Object(
  Object.fromEntries(
    PERIODS.map(period => [period, Type.Optional(number(`how many; 0: this period is not used`, 0, 10_000))]),
  ),
  {
    additionalProperties: false,
    description: `the newest backup of each of so many periods stays: ${PERIODS.join(', ')}`,
  },
);

/** All settings; none is required here. */
export const SETTINGS = {
  verbose_name: described(Name, 'its name, which no other scheduled task has'),
  description: described(Text, 'free text'),
  action: oneOf(ACTIONS, { description: 'what is done; scan is of data pools' }),
  periodicity: oneOf(PERIODICITIES, { description: 'how often' }),
  every: number('of hourly ones: every so many hours', 1, 8760),
  weekdays: days('of weekly ones; of monthly ones with week: one weekday'),
  month_day: number('of monthly ones; a day that a month does not have is its last. 0: by week', 0, 31),
  week: oneOf(WEEKS, {
    description: 'of monthly ones without month_day: which of the weekdays of the month',
  }),
  cron: Type.String({ maxLength: 200, description: 'of cron ones: minute, hour, day, month, weekday' }),
  time_zone: Type.String({
    minLength: 1,
    maxLength: 64,
    description: 'IANA name, as Europe/Berlin; default: that of the controller',
  }),
  start_date: described(Time, 'nothing is due before; its time of day is that of all runs, but for cron'),
  missed_run: oneOf(MISSED_RUNS, {
    description: 'what becomes of runs that were missed: one is made up for, or none',
  }),
  entities: ids('VMs; data pools of a scan'),
  tags: ids('all that bear one of these tags when it runs'),
  nodes: ids('all of these nodes when it runs'),
  all: truth('all there are when it runs'),
  exclude_entities: ids('none of these'),
  exclude_tags: ids('nothing that bears one of these tags'),
  options: Options,
  full_weekdays: days('on these weekdays the backup is a full one instead of an increment'),
  name_template: Type.String({
    maxLength: 200,
    description: `description of its backups: text with ${NAME_WORDS.map(word => `{${word}}`).join(', ')}`,
  }),
  increment_limit: number(
    'after so many increments all saved states of the VM are deleted, and the next backup is a full one; 0: never',
    0,
    10_000,
  ),
  keep_manual_states: truth('states that people made stay then'),
  parallel_limit: number(
    'VMs at a time; 0: all at once, though schedules.per_node of the controller bounds how many a node does. On network file systems at most 2 are advised',
    0,
    10_000,
  ),
  window_end: Type.String({
    maxLength: 5,
    description: 'HH:MM: what has not begun by then does not; empty: no window',
  }),
  window_action: oneOf(WINDOW_ACTIONS, { description: 'what becomes of what runs then' }),
  bandwidth: number('bytes per second of all its backups on a node together; 0: no limit', 0, 1e12),
  retries: number('further attempts for each VM after an error that may pass', 0, 20),
  retry_delay_s: number('before the first of them, in seconds; doubled before each further one', 1, 86_400),
  keep_count: number('so many backups of a VM stay; 0: however many there are', 0, 100_000),
  limit_days: number('older ones are deleted; 0: of any age', 0, 100_000),
  keep: Keep,
  free_space_cleanup: truth(
    'the oldest backups of such tasks are deleted when the pool has no space for the next one',
  ),
  keep_states: number('restore points that an incremental backup holds at most; 0: all', 0, 10_000),
  keep_states_by: oneOf(STATE_RULES, {
    description: 'older ones are taken out of it, or a new backup begins',
  }),
  verify_scope: oneOf(VERIFY_SCOPES, { description: 'of verify: the newest backup of each VM, or all' }),
} satisfies TProperties;

const EntityClass = oneOf(ENTITY_CLASSES, { description: 'what it is about: that follows from the action' });
const GIVEN = { ...SETTINGS, entity_class: EntityClass };

/** Any of them, as a request has them. */
export const GIVEN_SETTINGS = Object.fromEntries(
  Object.entries(GIVEN).map(([name, schema]) => [name, Type.Optional(schema)]),
) as { [K in keyof typeof GIVEN]: ReturnType<typeof Type.Optional<(typeof GIVEN)[K]>> };

const RUN = {
  id: described(Uuid, 'id of the run'),
  task: nullable(Uuid, 'its task of many parts; null: it did not run'),
  due_time: nullable(Time, 'null: somebody asked for it'),
  status: oneOf(RUN_STATUSES, {
    description:
      'SKIPPED: the run before had not ended, or its zone is gone from the system; MISSED: nobody was there, and the task says to skip',
  }),
  missed_count: integer('due times before it that passed while nobody was there'),
  reason: text('why it did not run, or why it failed where it has no parts'),
  window_end: nullable(Time, 'when what has not begun does not begin any more'),
  username: text('whose run it is'),
  created: described(Time, 'when it began'),
  finished: nullable(Time, 'when it ended'),
};

const exampleRun = {
  id: STORY.run,
  task: STORY.run,
  due_time: STORY.changed,
  status: 'SUCCESS' as const,
  missed_count: 0,
  reason: '',
  window_end: null,
  username: 'admin',
  created: STORY.changed,
  finished: STORY.ended,
};

export const ScheduleSchema = record(
  'ScheduledTask',
  {
    description: 'Something that is done by itself, again and again',
    example: {
      id: STORY.schedule,
      ...DEFAULTS,
      verbose_name: 'nightly',
      time_zone: 'Europe/Berlin',
      start_date: STORY.created,
      tags: [STORY.tag],
      options: { increment: true, datapool: STORY.pool },
      full_weekdays: ['sun'],
      increment_limit: 7,
      limit_days: 30,
      parallel_limit: 2,
      entity_class: 'domain',
      enabled: true,
      next_run: STORY.until,
      last_run: exampleRun,
      warnings: [],
      user: 'admin',
      created: STORY.created,
      modified: STORY.created,
      permissions: ['update', 'remove', 'run', 'disable', 'copy'],
    },
  },
  {
    id: described(Uuid, 'id of the scheduled task'),
    ...SETTINGS,
    entity_class: EntityClass,
    enabled: truth('it is due by itself'),
    next_run: nullable(Time, 'when it is due next; null: never again, or not enabled'),
    last_run: nullable(part(RUN, 'its newest run'), 'null: there was none'),
    warnings: texts('what may surprise'),
    user: text('who made it'),
    created: described(Time, 'when it was made'),
    modified: described(Time, 'when it was changed last'),
    permissions: Permissions,
  },
);

const Part = part(
  {
    entity: described(Uuid, 'the VM, or the data pool'),
    entity_class: text('domain, data_pool'),
    verbose_name: text('its name then'),
    status: oneOf(PART_STATUSES, {
      description:
        'PARTIAL: its backup is good, but a step besides has failed, with the error; SKIPPED: it was gone, or the window ended before it began',
    }),
    mode: oneOf(['full', 'increment', ''], { description: 'of backups; empty before it begins' }),
    task: nullable(Uuid, 'the task of its step; null: none at present'),
    file: nullable(Uuid, 'the backup that was made or extended'),
    attempts: integer('how often it was tried'),
    bytes: nullable(Bytes, 'that it took'),
    estimate: described(Bytes, 'that it was expected to take'),
    started: nullable(Time, 'when it began'),
    finished: nullable(Time, 'when it ended'),
    error: Failure,
    notes: texts('what else there is to tell'),
  },
  'what was done with one of them',
);

const examplePart = {
  entity: STORY.domain,
  entity_class: 'domain',
  verbose_name: 'web-1',
  status: 'SUCCESS' as const,
  mode: 'increment' as const,
  task: null,
  file: STORY.file,
  attempts: 1,
  bytes: 73_400_320,
  estimate: 80_740_352,
  started: STORY.changed,
  finished: STORY.ended,
  error: null,
  notes: [],
};

export const RunSchema = record(
  'ScheduledRun',
  {
    description: 'One run of a scheduled task, or the record that it did not run',
    example: { ...exampleRun, parts: [examplePart] },
  },
  { ...RUN, parts: Type.Array(Part, { description: 'what it did, by the name of the VM' }) },
);

/** The result of the task of a run. */
export const RunResultSchema = record(
  'ScheduledRunResult',
  { description: 'What became of each part of a run', example: { parts: [examplePart], missing: [] } },
  {
    parts: Type.Array(Part, { description: 'by the name of the VM' }),
    missing: texts('ids that the task names and nobody has'),
  },
);

export const PreviewSchema = record(
  'SchedulePreview',
  {
    description: 'What a scheduled task will do',
    example: {
      runs: [{ due_time: STORY.until, mode: 'increment', window_end: null }],
      targets: [{ id: STORY.domain, verbose_name: 'web-1', estimate: 80_740_352, manual_states: [] }],
      missing: [],
      warnings: [],
    },
  },
  {
    runs: Type.Array(
      part({
        due_time: described(Time, 'when it is due'),
        mode: nullable(oneOf(['full', 'increment']), 'by the weekday alone; null: it is no backup'),
        window_end: nullable(Time, 'null: no window'),
      }),
      { description: 'the next 20' },
    ),
    targets: Type.Array(
      part({
        id: described(Uuid, 'the VM, or the data pool'),
        verbose_name: text('its name'),
        estimate: described(Bytes, 'that its next backup is expected to take'),
        manual_states: texts('states made by hand that the limit of increments will delete'),
      }),
      { description: 'what it would be about now' },
    ),
    missing: texts('ids that it names and nobody has'),
    warnings: texts('what may surprise'),
  },
);

export const RetentionVerdictSchema = record(
  'RetentionVerdict',
  {
    description: 'Whether a backup stays when the next one is good, and why',
    example: {
      file: STORY.file,
      filename: 'web-1-20260301T020000Z.tar',
      domain: { id: STORY.domain, verbose_name: 'web-1' },
      newest: STORY.created,
      size: 1_073_741_824,
      action: 'delete',
      reason: 'too_old',
    },
  },
  {
    file: described(Uuid, 'the backup file'),
    filename: text('its name'),
    domain: named('its VM'),
    newest: described(Time, 'its newest restore point'),
    size: described(Bytes, 'that it takes'),
    action: oneOf(['keep', 'delete'], { description: 'what becomes of it' }),
    reason: text('the rule that decides'),
  },
);

export const QueuedPartSchema = record(
  'QueuedPart',
  {
    description: 'A part of a run that waits for its turn',
    example: {
      position: 1,
      run: STORY.run,
      scheduled_task: { id: STORY.schedule, verbose_name: 'nightly' },
      entity: { id: STORY.domain, verbose_name: 'web-1' },
      reason: 'node_limit',
      not_before: null,
    },
  },
  {
    position: integer('from 1, as things are now'),
    run: described(Uuid, 'its run'),
    scheduled_task: named('whose run it is'),
    entity: named('the VM, or the data pool'),
    reason: oneOf(WAIT_REASONS, { description: 'what it waits for' }),
    not_before: nullable(Time, 'of one that is tried again: not before'),
  },
);

export const OccurrenceSchema = record(
  'ScheduleOccurrence',
  {
    description: 'A run of a scheduled task in the calendar: one that was, or one that is to come',
    example: {
      scheduled_task: { id: STORY.schedule, verbose_name: 'nightly' },
      time: STORY.until,
      run: null,
      status: null,
      mode: 'increment',
    },
  },
  {
    scheduled_task: named('whose run it is'),
    time: described(Time, 'when it was begun, or is due'),
    run: nullable(Uuid, 'null: it is to come'),
    status: nullable(oneOf(RUN_STATUSES), 'what became of it; null: it is to come'),
    mode: nullable(
      oneOf(['full', 'increment']),
      'of one to come, by the weekday alone; null: it was, or is no backup',
    ),
  },
);
