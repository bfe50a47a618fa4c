/**
 * What targets can be told of: a closed list, each with the schema of its data. The schemas are the types here, the API document's, and
 * say which fields a template may name. Every field is always there, so that a template never meets one of something further out.
 */
import Type, { type Static, type TProperties } from 'typebox';

const closed = { additionalProperties: false } as const;
const text = (description: string) => Type.String({ description });
const time = (description: string) => Type.String({ format: 'date-time', description });
const count = (description: string) => Type.Integer({ minimum: 0, description });
const seconds = (description: string) => Type.Number({ minimum: 0, description });
const orNull = <T extends ReturnType<typeof time> | ReturnType<typeof seconds>>(schema: T) =>
  Type.Union([schema, Type.Null()], { description: (schema as { description?: string }).description ?? '' });
const part = <P extends TProperties>(properties: P, description: string) =>
  Type.Object(properties, { ...closed, description });
const listOf = <P extends TProperties>(properties: P, description: string) =>
  Type.Array(Type.Object(properties, closed), { description });

const named = {
  id: text('its id'),
  verbose_name: text('its name'),
};

/** How VMs are protected. @param states those that may be among them */
const protectionOf = (description: string, states: string) =>
  listOf(
    {
      ...named,
      node: text('name of its node'),
      state: text(states),
      last_good: orNull(time('when its last good backup was made; null: never')),
      age_days: orNull(seconds('age of that, days; null: there is none')),
      reason: text('why the last one failed; may be empty'),
    },
    description,
  );

export const RUN_OUTCOMES = ['succeeded', 'partial', 'failed', 'skipped', 'canceled'] as const;
export type RunOutcome = (typeof RUN_OUTCOMES)[number];

/** Of `run_failed`, `run_partial` and `run_succeeded`: a run of a scheduled task has ended, or did not happen. */
export const RunData = Type.Object(
  {
    task: part(named, 'the scheduled task'),
    run: text('id of the run, which is a task of many parts; empty: it did not begin'),
    started: time('when it began, or should have begun'),
    finished: time('when it ended, or it was clear that it does not begin'),
    duration_s: seconds('how long it took, s'),
    reason: text('why the run as a whole failed, or did not begin; empty: see its VMs'),
    counts: part(
      {
        total: count('VMs of the run'),
        succeeded: count('VMs with a new backup'),
        partial: count(
          'VMs with a new backup where something else failed: old ones are still there, for example',
        ),
        failed: count('VMs without one'),
        skipped: count('VMs that were not begun'),
        canceled: count('VMs whose backup was cancelled'),
      },
      'its VMs by outcome',
    ),
    vms: listOf(
      {
        ...named,
        outcome: Type.Unsafe<RunOutcome>({
          type: 'string',
          enum: [...RUN_OUTCOMES],
          description: 'how it ended',
        }),
        reason: text('why it failed or was skipped, or what is to be known of it; may be empty'),
        file: text('name of the backup file; empty: there is none'),
        size: count('of the backup file, bytes'),
        duration_s: seconds('how long it took, s'),
      },
      'each VM',
    ),
  },
  { ...closed, description: 'A run of a scheduled task' },
);
export type RunData = Static<typeof RunData>;

/** Of `protection_late`: VMs that are not backed up as they should be. */
export const LateData = Type.Object(
  {
    days: count('so old the last good backup of a VM may be that no scheduled task covers, days'),
    vms: protectionOf('each VM that is late, failing or never backed up', 'late, failing or never'),
  },
  { ...closed, description: 'VMs that are not backed up as they should be' },
);
export type LateData = Static<typeof LateData>;

/** Of `summary`: once a day, how every VM is protected. */
export const SummaryData = Type.Object(
  {
    date: text('the day that it is about, as YYYY-MM-DD'),
    counts: part(
      {
        protected: count('VMs with a good backup that is young enough'),
        late: count('VMs whose last good backup is too old'),
        failing: count('VMs whose last backup failed'),
        never: count('VMs without any good backup'),
        excluded: count('VMs that need none'),
      },
      'VMs by state',
    ),
    vms: protectionOf('every VM', 'protected, late, failing, never or excluded'),
  },
  { ...closed, description: 'How every VM is protected' },
);
export type SummaryData = Static<typeof SummaryData>;

/** Of `test`: somebody wants to see whether a target works. */
export const TestData = Type.Object(
  { user: text('who asked for it') },
  { ...closed, description: 'A test of a target' },
);
export type TestData = Static<typeof TestData>;

/** What a target can be told of by itself. */
export const EVENTS = ['run_failed', 'run_partial', 'run_succeeded', 'protection_late', 'summary'] as const;
export type EventName = (typeof EVENTS)[number];
/** A test is only sent when somebody asks for it. */
export const ALL_EVENTS = [...EVENTS, 'test'] as const;
export type AnyEventName = (typeof ALL_EVENTS)[number];

export const EVENT_DATA = {
  run_failed: RunData,
  run_partial: RunData,
  run_succeeded: RunData,
  protection_late: LateData,
  summary: SummaryData,
  test: TestData,
} as const;

/** What may be told, with its data. */
export type NotificationEvent = {
  [E in EventName]: { event: E; data: Static<(typeof EVENT_DATA)[E]> };
}[EventName];

const EXAMPLE_VM = { id: '6f1c2d3e-4b5a-4978-8c6d-1e2f3a4b5c6d', verbose_name: 'web-1' };

const EXAMPLE_RUN: RunData = {
  task: { id: '3a4b5c6d-7e8f-4a0b-9c1d-2e3f4a5b6c7d', verbose_name: 'nightly' },
  run: '7a8b9c0d-1e2f-4a3b-9c4d-5e6f7a8b9c0e',
  started: '2026-03-02T02:00:00.000Z',
  finished: '2026-03-02T02:04:10.000Z',
  duration_s: 250,
  reason: '',
  counts: { total: 2, succeeded: 1, partial: 0, failed: 1, skipped: 0, canceled: 0 },
  vms: [
    {
      ...EXAMPLE_VM,
      outcome: 'succeeded',
      reason: '',
      file: 'web-1_20260302T020000Z.tar.zst',
      size: 1_288_490_189,
      duration_s: 180,
    },
    {
      id: 'a7b8c9d0-1e2f-4a3b-8c4d-5e6f7a8b9c0d',
      verbose_name: 'db-1',
      outcome: 'failed',
      reason: 'No space left on the device while writing db-1.tar. What was written has been removed.',
      file: '',
      size: 0,
      duration_s: 250,
    },
  ],
};

const EXAMPLE_LATE: LateData['vms'][number] = {
  ...EXAMPLE_VM,
  node: 'n1',
  state: 'late',
  last_good: '2026-02-26T02:04:10.000Z',
  age_days: 4.1,
  reason: '',
};

/** For the document, and for whoever wants to see what a template makes. */
export const EXAMPLE_DATA: { readonly [E in AnyEventName]: Static<(typeof EVENT_DATA)[E]> } = {
  run_failed: EXAMPLE_RUN,
  run_partial: EXAMPLE_RUN,
  run_succeeded: {
    ...EXAMPLE_RUN,
    counts: { total: 1, succeeded: 1, partial: 0, failed: 0, skipped: 0, canceled: 0 },
    vms: EXAMPLE_RUN.vms.slice(0, 1),
  },
  protection_late: { days: 3, vms: [EXAMPLE_LATE] },
  summary: {
    date: '2026-03-02',
    counts: { protected: 1, late: 1, failing: 0, never: 0, excluded: 0 },
    vms: [
      EXAMPLE_LATE,
      {
        id: 'a7b8c9d0-1e2f-4a3b-8c4d-5e6f7a8b9c0d',
        verbose_name: 'db-1',
        node: 'n1',
        state: 'protected',
        last_good: '2026-03-02T02:04:10.000Z',
        age_days: 0.2,
        reason: '',
      },
    ],
  },
  test: { user: 'admin' },
};
