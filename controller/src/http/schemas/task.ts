import Type, { type TSchema } from 'typebox';
import { TASK_STATUSES } from '../../services/tasks/record.ts';
import { Bytes, nullable, oneOf, Permissions, record, ref, Time, ToldUser, Uuid } from './common.ts';

export const TaskRecordSchema = record('Task', {
  id: Uuid,
  verbose_name: Type.String(),
  name: Type.String(),
  status: oneOf(TASK_STATUSES),
  progress: Type.Integer({ minimum: 0, maximum: 100 }),
  created: Time,
  executed: Type.String({ description: 'seconds' }),
  finished_time: nullable(Time),
  error_message: Type.String(),
  error: nullable(
    Type.Object(
      { code: Type.String(), detail: Type.String(), msg_key: Type.String() },
      { additionalProperties: false },
    ),
  ),
  is_cancellable: Type.Boolean(),
  is_multitask: Type.Boolean(),
  parent: nullable(Uuid),
  entities: Type.Record(Type.String(), Type.String(), {
    description: 'class of each entity by its uuid; the thing made or changed comes first',
  }),
  nodes_list: Type.Array(Uuid),
  nodes_user_responses: Type.Array(Type.Unknown()),
  events: Type.Array(Uuid),
  user: ToldUser,
  permissions: Permissions,
  detail: Type.Object(
    {
      phase: Type.String(),
      bytes_done: Bytes,
      bytes_total: Bytes,
      rate: Type.Integer({ minimum: 0, description: 'bytes per second' }),
      message: Type.String(),
    },
    { additionalProperties: false },
  ),
});

/** The answer of an action that goes on. */
export const TaskAccepted = record('TaskAccepted', { entity: Uuid, _task: ref(TaskRecordSchema) });

/** Answers of a long action: the result record (given, or any object) and the 202. */
export function taskAnswers(result?: TSchema) {
  return {
    200: Type.Unsafe<unknown>(result ?? { type: 'object', description: 'the result of the task' }),
    202: Type.Unsafe<unknown>({ $ref: 'TaskAccepted#', description: 'the task goes on' }),
  };
}

export const MultiResultSchema = record('MultiResult', {
  parts: Type.Array(
    Type.Object(
      {
        entity: Uuid,
        task: nullable(Type.String({ ...Uuid, description: 'null: refused before it was a task' })),
        status: oneOf(TASK_STATUSES),
        error: TaskRecordSchema.properties.error,
      },
      { additionalProperties: false },
    ),
  ),
});

export const TaskResponse = record('TaskResponse', {
  status: oneOf(TASK_STATUSES),
  response: Type.Unknown({ description: 'the result record; null before the end' }),
  error: TaskRecordSchema.properties.error,
});
