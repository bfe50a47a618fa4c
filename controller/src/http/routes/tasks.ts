import Type from 'typebox';
import { TASK_STATUSES } from '../../services/tasks/record.ts';
import type { RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { NODE_CALL } from '../node-errors.ts';
import { pageAnswer, parsePage } from '../paging.ts';
import {
  body,
  boolText,
  filterById,
  IdParams,
  integer,
  isTrue,
  listOf,
  listQuery,
  oneOf,
  ref,
} from '../schemas/common.ts';
import { TaskRecordSchema, TaskResponse } from '../schemas/task.ts';

const ORDERINGS = ['-created', 'finished_time', 'status', 'name', 'verbose_name', 'progress'] as const;

const tags = ['tasks'];

export const taskRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/tasks/',
    {
      config: { access: 'task.read' },
      schema: {
        tags,
        summary: 'List tasks, newest first',
        querystring: listQuery({
          parent: filterById('parts of this task'),
          is_part: boolText('false: only tasks that are parts of no other; true: only parts'),
          status: Type.Optional(oneOf(TASK_STATUSES, { description: 'with this status' })),
          entity: filterById('about this thing'),
          node: filterById('on this node'),
        }),
        response: { 200: listOf(TaskRecordSchema) },
      },
    },
    async request => {
      const { parent, is_part, status, entity, node } = request.query;
      const isPart = isTrue(is_part);
      const page = parsePage(request.query, TaskRecordSchema, ORDERINGS);
      const { count, tasks } = await services.tasks.list({ ...page, parent, isPart, status, entity, node });
      const viewer = principalOf(request);
      return pageAnswer(
        request,
        page,
        count,
        tasks.map(task => services.tasks.record(task, viewer)),
      );
    },
  );

  app.get(
    '/api/tasks/count/',
    {
      config: { access: 'task.read' },
      schema: {
        tags,
        summary: 'Number of tasks, by status',
        response: {
          200: body(
            {
              count: integer('of all tasks'),
              statuses: Type.Record(Type.String(), Type.Integer(), { description: 'number by status' }),
            },
            { count: 12, statuses: { SUCCESS: 11, IN_PROGRESS: 1 } },
          ),
        },
      },
    },
    async () => {
      const statuses = await services.tasks.counts();
      return { count: Object.values(statuses).reduce((sum, number) => sum + number, 0), statuses };
    },
  );

  app.put(
    '/api/tasks/check/',
    {
      config: { access: 'task.read' },
      schema: {
        tags,
        summary: 'Ask the nodes what became of the tasks without an outcome',
        response: {
          200: body(
            {
              checked: integer('tasks that were asked for'),
              changed: integer('of which have an outcome now'),
            },
            { checked: 1, changed: 1 },
          ),
        },
      },
    },
    async () => services.tasks.check(),
  );

  app.get(
    '/api/tasks/:id/',
    {
      config: { access: 'task.read' },
      schema: { tags, summary: 'One task', params: IdParams, response: { 200: ref(TaskRecordSchema) } },
    },
    async request => services.tasks.record(await services.tasks.get(request.params.id), principalOf(request)),
  );

  app.get(
    '/api/tasks/:id/response/',
    {
      config: { access: 'task.read' },
      schema: {
        tags,
        summary: 'The result of a task',
        params: IdParams,
        response: { 200: ref(TaskResponse) },
      },
    },
    async request => {
      const task = await services.tasks.get(request.params.id);
      const { status, error } = services.tasks.record(task, null);
      return { status, response: services.domains.seenBy(task.result, principalOf(request)), error };
    },
  );

  app.put(
    '/api/tasks/:id/cancel/',
    {
      config: {
        access: 'task.cancel',
        errors: [...NODE_CALL, 'not_cancellable', 'permission_denied', 'outcome_unknown'],
      },
      schema: {
        tags,
        summary: 'Ask a task to stop and undo what it did',
        description:
          'For who began it, operators and administrators. A node that cannot be asked now is asked when it is back.',
        params: IdParams,
        response: { 200: ref(TaskRecordSchema) },
      },
    },
    async request => {
      const viewer = principalOf(request);
      return services.tasks.record(await services.tasks.cancel(request.params.id, viewer), viewer);
    },
  );

  app.put(
    '/api/tasks/:id/release-locks/',
    {
      config: { access: 'task.release_locks', errors: ['not_cancellable'] },
      schema: {
        tags,
        summary: 'Give up a lost task: it fails, and what it had locked is free',
        params: IdParams,
        response: { 200: ref(TaskRecordSchema) },
      },
    },
    async request =>
      services.tasks.record(await services.tasks.releaseLocks(request.params.id), principalOf(request)),
  );
};
