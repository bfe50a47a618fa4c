import Type from 'typebox';
import { EVENT_TYPES } from '../../services/journal/events.ts';
import { STORY } from '../document/story.ts';
import {
  described,
  integer,
  nullable,
  oneOf,
  Permissions,
  part,
  record,
  Time,
  text,
  UserNumber,
  Uuid,
} from './common.ts';

export const EventSchema = record(
  'Event',
  {
    description: 'Something that happened',
    example: {
      id: STORY.event,
      type: 'info',
      message: 'Backup of web-1 was made.',
      detail_message: '',
      user: 'alice',
      created: STORY.ended,
      task: STORY.task,
      entities: [{ entity_uuid: STORY.file, entity_class: 'file' }],
      permissions: [],
    },
  },
  {
    id: described(Uuid, 'id of the event'),
    type: oneOf(EVENT_TYPES, { description: 'how grave it is' }),
    message: text('what happened, in a sentence'),
    detail_message: text('what there is to say beside; may be empty'),
    user: text('name of who caused it; empty: nobody'),
    created: described(Time, 'when it happened'),
    task: nullable(described(Uuid, 'the task that it belongs to')),
    entities: Type.Array(
      part({
        entity_uuid: text('id of the thing'),
        entity_class: text('its kind: domain, file, node, …'),
      }),
      { description: 'what it is about' },
    ),
    permissions: Permissions,
  },
);

export const AuditSchema = record(
  'AuditRecord',
  {
    description: 'A request that changed something, or was refused',
    example: {
      id: STORY.event,
      created: STORY.changed,
      user: { id: 2, username: 'alice' },
      address: '192.0.2.10',
      method: 'POST',
      path: '/api/domains/backup/',
      action: 'POST /api/domains/backup/',
      entity: STORY.domain,
      status: 202,
      error: null,
      task: STORY.task,
      request_id: STORY.request,
      request: { domain: STORY.domain },
      count: 1,
      last_time: STORY.changed,
    },
  },
  {
    id: described(Uuid, 'id of the record'),
    created: described(Time, 'when it was asked for'),
    user: part(
      {
        id: nullable(described(UserNumber, 'number of the user; null: not known')),
        username: text('the name at that time'),
      },
      'who asked',
    ),
    address: text('where from'),
    method: text('of HTTP'),
    path: text('the path that was called'),
    action: text('method and route'),
    entity: nullable(text('id of what it is about; of a user the number')),
    status: integer('HTTP status of the answer'),
    error: nullable(text('msg_key')),
    task: nullable(described(Uuid, 'the task that it began')),
    request_id: text('the X-Request-Id of the answer'),
    request: Type.Unknown({ description: 'the body, secrets removed' }),
    count: integer('how often the same refusal was repeated'),
    last_time: described(Time, 'when it was repeated last'),
  },
);
