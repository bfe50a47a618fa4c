/** Scheduled tasks: what is done by itself, when, and what became of it. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import Type from 'typebox';
import type { DefinitionInput } from '../../services/schedules/definition.ts';
import type { Services } from '../../services/services.ts';
import { LONG_ACTION, runTask } from '../actions.ts';
import { type App, principalOf, type RouteModule } from '../app.ts';
import { STORY } from '../document/story.ts';
import { listFromArray, pageAnswer, parsePage } from '../paging.ts';
import { permitted } from '../permitted.ts';
import {
  AsyncQuery,
  body,
  boolText,
  described,
  IdParams,
  isTrue,
  listOf,
  listQuery,
  Name,
  Nothing,
  ref,
  Time,
  truth,
} from '../schemas/common.ts';
import {
  GIVEN_SETTINGS,
  OccurrenceSchema,
  PreviewSchema,
  QueuedPartSchema,
  RetentionVerdictSchema,
  RunResultSchema,
  RunSchema,
  ScheduleSchema,
} from '../schemas/schedule.ts';
import { taskAnswers } from '../schemas/task.ts';

const tags = ['scheduled tasks'];
const ORDERINGS = ['verbose_name', 'next_run', 'created', 'modified'] as const;
const REFERENCES = [
  'domain_not_found',
  'pool_not_found',
  'node_not_found',
  'tag_not_found',
  'file_not_found',
  'conflicting_fields',
  'missing_field',
] as const;
const SETTINGS_ERRORS = [...REFERENCES, 'name_taken'] as const;

const enabled = Type.Optional(truth('false: it is due only when somebody asks for it'));
const KnownState = Type.Optional(
  described(Time, '`modified` as you read it: nothing is changed when somebody else has changed it since'),
);
const example = {
  verbose_name: 'nightly',
  tags: [STORY.tag],
  periodicity: 'daily' as const,
  start_date: STORY.created,
  time_zone: 'Europe/Berlin',
  options: { increment: true },
  full_weekdays: ['sun' as const],
  increment_limit: 7,
  limit_days: 30,
};

export const scheduleRoutes: RouteModule = (app, services) => {
  readRoutes(app, services);
  changeRoutes(app, services);
  stateRoutes(app, services);
  historyRoutes(app, services);
  calendarRoute(app, services);
  previewRoutes(app, services);
};

function readRoutes(app: App, services: Services): void {
  app.get(
    '/api/scheduled-tasks/',
    {
      config: { access: 'schedule.read' },
      schema: {
        tags,
        summary: 'List scheduled tasks',
        querystring: listQuery({
          enabled: boolText('only those that are due by themselves, or that are not'),
        }),
        response: { 200: listOf(ScheduleSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, ScheduleSchema, ORDERINGS);
      const wanted = isTrue(request.query.enabled);
      const viewer = principalOf(request);
      const all = await services.schedules.list();
      return listFromArray(
        request,
        page,
        all.filter(one => wanted === undefined || one.enabled === wanted),
        { render: one => permitted('schedule', one, viewer) },
      );
    },
  );

  app.get(
    '/api/scheduled-tasks/:id/',
    {
      config: { access: 'schedule.read', errors: ['schedule_not_found'] },
      schema: {
        tags,
        summary: 'One scheduled task',
        params: IdParams,
        response: { 200: ref(ScheduleSchema) },
      },
    },
    async request =>
      permitted('schedule', await services.schedules.get(request.params.id), principalOf(request)),
  );
}

function changeRoutes(app: App, services: Services): void {
  app.post(
    '/api/scheduled-tasks/',
    {
      config: { access: 'schedule.manage', errors: SETTINGS_ERRORS },
      schema: {
        tags,
        summary: 'Make a scheduled task',
        description: 'Look at its `warnings`, and at the preview, before it runs for the first time.',
        body: body({ ...GIVEN_SETTINGS, verbose_name: described(Name, 'its name'), enabled }, example),
        response: { 200: ref(ScheduleSchema) },
      },
    },
    async request => {
      const { enabled: isEnabled = true, idempotency_key: _key, ...input } = request.body as Given;
      const viewer = principalOf(request);
      return permitted('schedule', await services.schedules.create(input, isEnabled, viewer), viewer);
    },
  );

  app.put(
    '/api/scheduled-tasks/:id/',
    {
      config: {
        access: 'schedule.manage',
        errors: [...SETTINGS_ERRORS, 'schedule_not_found', 'schedule_changed'],
      },
      schema: {
        tags,
        summary: 'Change a scheduled task',
        description:
          'What is not named stays as it is. A run that has begun goes on as it was; what is due already stays due.',
        params: IdParams,
        body: body({ ...GIVEN_SETTINGS, enabled, modified: KnownState }, { limit_days: 60 }),
        response: { 200: ref(ScheduleSchema) },
      },
    },
    async request => {
      const { idempotency_key: _key, ...input } = request.body as Given;
      const record = await services.schedules.update(request.params.id, input);
      return permitted('schedule', record, principalOf(request));
    },
  );

  app.post(
    '/api/scheduled-tasks/:id/remove/',
    {
      config: { access: 'schedule.manage', errors: ['schedule_not_found', 'schedule_running'] },
      schema: {
        tags,
        summary: 'Remove a scheduled task with its history',
        description: 'Its backups stay, and no retention is applied to them any more.',
        params: IdParams,
        response: { 200: Nothing },
      },
    },
    async request => {
      await services.schedules.remove(request.params.id);
      return {};
    },
  );

  app.post(
    '/api/scheduled-tasks/:id/copy/',
    {
      config: { access: 'schedule.manage', errors: [...SETTINGS_ERRORS, 'schedule_not_found'] },
      schema: {
        tags,
        summary: 'Make a scheduled task with the same settings, which is not enabled',
        params: IdParams,
        body: body(
          {
            verbose_name: Type.Optional(
              described(Name, 'its name; default: that of the original with a number'),
            ),
          },
          { verbose_name: 'weekly' },
        ),
        response: { 200: ref(ScheduleSchema) },
      },
    },
    async request => {
      const viewer = principalOf(request);
      const record = await services.schedules.copy(request.params.id, request.body.verbose_name, viewer);
      return permitted('schedule', record, viewer);
    },
  );
}

/** A body as its schema has let it in. */
type Given = DefinitionInput & { enabled?: boolean; modified?: string; idempotency_key?: string };

function stateRoutes(app: App, services: Services): void {
  for (const action of ['enable', 'disable'] as const)
    app.post(
      `/api/scheduled-tasks/:id/${action}/`,
      {
        config: { access: 'schedule.manage', errors: ['schedule_not_found'] },
        schema: {
          tags,
          summary:
            action === 'enable'
              ? 'Let a scheduled task be due by itself'
              : 'Let it be due only when somebody asks for it',
          params: IdParams,
          response: { 200: ref(ScheduleSchema) },
        },
      },
      async request => {
        const record = await services.schedules.update(request.params.id, { enabled: action === 'enable' });
        return permitted('schedule', record, principalOf(request));
      },
    );

  app.post(
    '/api/scheduled-tasks/:id/run/',
    {
      config: {
        access: 'schedule.manage',
        ...LONG_ACTION,
        errors: ['schedule_not_found', 'schedule_running', 'nothing_selected', 'parts_failed'],
      },
      schema: {
        tags,
        summary: 'Run a scheduled task now, as a task with a part for each VM',
        description: 'It comes before those that are due by themselves. When it is due next does not change.',
        params: IdParams,
        querystring: AsyncQuery,
        response: taskAnswers(ref(RunResultSchema)),
      },
    },
    (request, reply) =>
      runTask(services, request, reply, {
        start: taskId => services.schedules.run(request.params.id, principalOf(request), taskId),
      }),
  );
}

function historyRoutes(app: App, services: Services): void {
  app.get(
    '/api/scheduled-tasks/:id/runs/',
    {
      config: { access: 'schedule.read', errors: ['schedule_not_found'] },
      schema: {
        tags,
        summary: 'The runs of a scheduled task, the newest first',
        params: IdParams,
        querystring: listQuery({}),
        response: { 200: listOf(RunSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, RunSchema, ['-created']);
      const { count, runs } = await services.schedules.runs(request.params.id, page);
      return pageAnswer(request, page, count, runs);
    },
  );

  app.get(
    '/api/scheduled-tasks/queue/',
    {
      config: { access: 'schedule.read' },
      schema: {
        tags,
        summary: 'What waits for its turn, of all runs, in the order in which it comes as things are',
        querystring: listQuery({}),
        response: { 200: listOf(QueuedPartSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, QueuedPartSchema, ['position']);
      return listFromArray(request, page, services.schedules.queue(), {
        nameOf: ({ entity }) => entity.verbose_name,
      });
    },
  );
}

const DAY_MS = 86_400_000;
const DEFAULT_DAYS = 31;
/** Two months as a page shows them, with the days of the weeks around. */
const MOST_DAYS = 75;

function calendarRoute(app: App, services: Services): void {
  app.get(
    '/api/scheduled-tasks/calendar/',
    {
      config: { access: 'schedule.read' },
      schema: {
        tags,
        summary: 'What all scheduled tasks did and will do between two instants',
        description: `At most ${MOST_DAYS} days, and 5000 runs: where there are more, the oldest of those that were and the latest of those to come are left out.`,
        querystring: listQuery({
          from: Type.Optional(described(Time, 'the first instant; default: now')),
          to: Type.Optional(
            described(Time, `the first one that is not meant; default: ${DEFAULT_DAYS} days later`),
          ),
        }),
        response: { 200: listOf(OccurrenceSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, OccurrenceSchema, ['time', 'scheduled_task']);
      const occurrences = await services.schedules.calendar(spanOf(request.query));
      return listFromArray(request, page, occurrences, {
        nameOf: ({ scheduled_task }) => scheduled_task.verbose_name,
      });
    },
  );
}

/** @throws invalid_field */
function spanOf(query: { from?: string; to?: string }): { from: number; to: number } {
  const from = query.from === undefined ? Date.now() : Date.parse(query.from);
  const to = query.to === undefined ? from + DEFAULT_DAYS * DAY_MS : Date.parse(query.to);
  if (to <= from || to - from > MOST_DAYS * DAY_MS)
    throw new VirtkeepError('invalid_field', {
      field: 'to',
      reason: `is not after from, or more than ${MOST_DAYS} days after it`,
    });
  return { from, to };
}

function previewRoutes(app: App, services: Services): void {
  app.get(
    '/api/scheduled-tasks/:id/preview/',
    {
      config: { access: 'schedule.read', errors: ['schedule_not_found'] },
      schema: {
        tags,
        summary:
          'What a scheduled task will do: its next 20 runs, what they are about, and what may surprise',
        params: IdParams,
        response: { 200: ref(PreviewSchema) },
      },
    },
    request => services.schedules.previewOf(request.params.id),
  );

  app.post(
    '/api/scheduled-tasks/preview/',
    {
      // it changes nothing, and is asked for while somebody writes
      config: { access: 'schedule.read', unaudited: true, errors: REFERENCES },
      schema: {
        tags,
        summary: 'The same of settings that are not those of a scheduled task yet',
        body: body({ ...GIVEN_SETTINGS }, example),
        response: { 200: ref(PreviewSchema) },
      },
    },
    request => {
      const { idempotency_key: _key, ...input } = request.body as Given;
      return services.schedules.preview(input);
    },
  );

  app.get(
    '/api/scheduled-tasks/:id/retention-preview/',
    {
      config: { access: 'schedule.read', errors: ['schedule_not_found'] },
      schema: {
        tags,
        summary: 'Which backups of a scheduled task stay and which go after the next good one, and why',
        params: IdParams,
        querystring: listQuery({}),
        response: { 200: listOf(RetentionVerdictSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, RetentionVerdictSchema, [
        '-newest',
        'filename',
        'size',
        'action',
      ]);
      const verdicts = await services.schedules.retentionPreview(request.params.id);
      return listFromArray(request, page, verdicts, { nameOf: ({ filename }) => filename });
    },
  );

  app.post(
    '/api/scheduled-tasks/:id/retention-preview/',
    {
      config: {
        access: 'schedule.read',
        unaudited: true,
        errors: ['schedule_not_found', ...SETTINGS_ERRORS],
      },
      schema: {
        tags,
        operationId: 'scheduled_tasks_retention_preview_of',
        summary:
          'The same as it would be with other settings; what is not named is as the scheduled task has it',
        params: IdParams,
        querystring: listQuery({}),
        body: body({ ...GIVEN_SETTINGS }, { limit_days: 7 }),
        response: { 200: listOf(RetentionVerdictSchema) },
      },
    },
    async request => {
      const { idempotency_key: _key, ...input } = request.body as Given;
      const page = parsePage(request.query, RetentionVerdictSchema, [
        '-newest',
        'filename',
        'size',
        'action',
      ]);
      const verdicts = await services.schedules.retentionPreview(request.params.id, input);
      return listFromArray(request, page, verdicts, { nameOf: ({ filename }) => filename });
    },
  );
}
