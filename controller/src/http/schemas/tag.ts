import Type from 'typebox';
import { Permissions, record, Time, Uuid } from './common.ts';

export const TagSchema = record('Tag', {
  id: Uuid,
  verbose_name: Type.String(),
  description: Type.String(),
  colour: Type.String({ description: 'empty: none was given' }),
  created: Time,
  modified: Time,
  entities: Type.Array(
    Type.Object({ entity_uuid: Uuid, entity_class: Type.String() }, { additionalProperties: false }),
    { description: 'what bears it: domain, node, data_pool, vdisk, file' },
  ),
  entities_count: Type.Integer(),
  permissions: Permissions,
});
