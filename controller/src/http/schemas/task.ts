import Type, { type TSchema } from 'typebox';
import { TASK_STATUSES } from '../../services/tasks/record.ts';
import { STORY } from '../document/story.ts';
import {
  Bytes,
  described,
  exampleOf,
  NamedUser,
  nullable,
  oneOf,
  Permissions,
  part,
  record,
  ref,
  Time,
  text,
  truth,
  Uuid,
} from './common.ts';

const Status = oneOf(TASK_STATUSES, {
  description:
    'PARTIAL: some of its parts did not succeed; LOST: its node is gone, and the outcome not known until it returns',
});
export const Failure = nullable(
  part({
    code: text('its first three digits are the HTTP status'),
    detail: text('what was wrong, and what to do'),
    msg_key: text('its stable name: one that the call which began the task may answer'),
  }),
  'why it failed; null otherwise',
);

export const TaskRecordSchema = record(
  'Task',
  {
    description: 'A long action',
    example: {
      id: STORY.task,
      verbose_name: 'Back up web-1',
      name: 'backup',
      status: 'IN_PROGRESS',
      progress: 42,
      created: STORY.changed,
      executed: '12.5',
      finished_time: null,
      error_message: '',
      error: null,
      is_cancellable: true,
      is_multitask: false,
      parent: null,
      entities: { [STORY.file]: 'file', [STORY.domain]: 'domain' },
      nodes_list: [STORY.node],
      nodes_user_responses: [],
      events: [],
      user: { id: 2, username: 'alice' },
      permissions: ['cancel'],
      detail: {
        phase: 'copy',
        bytes_done: 4_509_715_660,
        bytes_total: 10_737_418_240,
        rate: 209_715_200,
        message: '',
        steps: [{ phase: 'copy', message: '', since: STORY.changed }],
      },
    },
  },
  {
    id: described(Uuid, 'id of the task'),
    verbose_name: text('what it does, in words'),
    name: text('the kind of action'),
    status: Status,
    progress: Type.Integer({ minimum: 0, maximum: 100, description: 'percent' }),
    created: described(Time, 'when it was asked for'),
    executed: text('seconds'),
    finished_time: nullable(described(Time, 'null: it goes on')),
    error_message: text('the text of the error; empty without one'),
    error: Failure,
    is_cancellable: truth('it can be asked to stop'),
    is_multitask: truth('it has parts, which are tasks'),
    parent: nullable(described(Uuid, 'the task that it is a part of')),
    entities: Type.Record(Type.String(), Type.String(), {
      description: 'class of each entity by its uuid; the thing made or changed comes first',
    }),
    nodes_list: Type.Array(Uuid, { description: 'ids of the nodes that work on it' }),
    nodes_user_responses: Type.Array(Type.Unknown(), { description: 'always empty' }),
    events: Type.Array(Uuid, { description: 'ids of its events' }),
    user: NamedUser,
    permissions: Permissions,
    detail: part(
      {
        phase: text('the step it is at'),
        bytes_done: described(Bytes, 'bytes that are done in this step'),
        bytes_total: described(Bytes, 'of so many bytes; 0: not known'),
        rate: Type.Integer({ minimum: 0, description: 'bytes per second' }),
        message: text(
          'what else there is to say; at the end: what went otherwise than asked for, what was left',
        ),
        steps: Type.Array(
          part({
            phase: text('its name'),
            message: text('what was said in it last'),
            since: described(Time, 'when it came to it'),
          }),
          { description: 'the steps so far, the present one last; of very many the latest' },
        ),
      },
      'how far it is',
    ),
  },
);

/** The answer of an action that goes on. */
export const TaskAccepted = record(
  'TaskAccepted',
  {
    description: 'The task goes on; ask for it, or wait for its event',
    example: { entity: STORY.file, _task: exampleOf(TaskRecordSchema) },
  },
  { entity: described(Uuid, 'id of the thing that is made or changed'), _task: ref(TaskRecordSchema) },
);

const Result = Type.Object({}, { description: 'the result of the task', additionalProperties: true });

/** Answers of a long action: the result record (given, or any object) and the 202. */
export function taskAnswers(result?: TSchema) {
  return {
    200: Type.Unsafe<unknown>(result ?? Result),
    202: Type.Unsafe<unknown>({ $ref: 'TaskAccepted#', description: 'the task goes on' }),
  };
}

export const MultiResultSchema = record(
  'MultiResult',
  {
    description: 'What became of each VM',
    example: {
      parts: [{ entity: STORY.domain, task: STORY.part, status: 'SUCCESS', error: null }],
    },
  },
  {
    parts: Type.Array(
      part({
        entity: described(Uuid, 'id of the VM'),
        task: nullable(described(Uuid, 'null: refused before it was a task')),
        status: Status,
        error: Failure,
      }),
      { description: 'one for each VM' },
    ),
  },
);

export const TaskResponse = record(
  'TaskResponse',
  {
    description: 'The result of a task',
    example: {
      status: 'SUCCESS',
      response: { domain: STORY.domain, restarted: false },
      error: null,
    },
  },
  {
    status: Status,
    response: Type.Unknown({ description: 'the result record; null before the end' }),
    error: Failure,
  },
);
