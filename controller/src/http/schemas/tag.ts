import Type from 'typebox';
import { STORY } from '../document/story.ts';
import { described, integer, Permissions, part, record, Time, text, Uuid } from './common.ts';

export const TagSchema = record(
  'Tag',
  {
    description: 'A name that things bear to be found by',
    example: {
      id: STORY.tag,
      verbose_name: 'nightly',
      description: 'backed up every night',
      colour: '#1e90ff',
      created: STORY.created,
      modified: STORY.created,
      entities: [{ entity_uuid: STORY.domain, entity_class: 'domain' }],
      entities_count: 1,
      permissions: ['update', 'remove'],
    },
  },
  {
    id: described(Uuid, 'id of the tag'),
    verbose_name: text('its name, which no other tag has'),
    description: text('what it is for'),
    colour: text('empty: none was given'),
    created: described(Time, 'when it was made'),
    modified: described(Time, 'when its name or description changed last'),
    entities: Type.Array(
      part({
        entity_uuid: described(Uuid, 'id of the thing'),
        entity_class: text('domain, node, data_pool, vdisk or file'),
      }),
      { description: 'what bears it' },
    ),
    entities_count: integer('how many things bear it'),
    permissions: Permissions,
  },
);
