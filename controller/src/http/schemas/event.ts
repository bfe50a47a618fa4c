import Type from 'typebox';
import { EVENT_TYPES } from '../../services/journal/events.ts';
import { nullable, oneOf, Permissions, record, Time, UserNumber, Uuid } from './common.ts';

export const EventSchema = record('Event', {
  id: Uuid,
  type: oneOf(EVENT_TYPES),
  message: Type.String(),
  detail_message: Type.String(),
  user: Type.String(),
  created: Time,
  task: nullable(Uuid),
  entities: Type.Array(
    Type.Object({ entity_uuid: Type.String(), entity_class: Type.String() }, { additionalProperties: false }),
  ),
  permissions: Permissions,
});

export const AuditSchema = record('AuditRecord', {
  id: Uuid,
  created: Time,
  user: Type.Object({ id: nullable(UserNumber), username: Type.String() }, { additionalProperties: false }),
  address: Type.String(),
  method: Type.String(),
  path: Type.String(),
  action: Type.String({ description: 'method and route' }),
  entity: nullable(Type.String()),
  status: Type.Integer(),
  error: nullable(Type.String({ description: 'msg_key' })),
  task: nullable(Uuid),
  request_id: Type.String(),
  request: Type.Unknown({ description: 'the body, secrets removed' }),
  count: Type.Integer({ description: 'how often the same refusal was repeated' }),
  last_time: Time,
});
