import Type from 'typebox';
import { STORY } from '../document/story.ts';
import { described, named, nullable, Permissions, record, Time, text, texts, truth, Uuid } from './common.ts';

export const SnapshotSchema = record(
  'Snapshot',
  {
    description: 'A saved state of a VM',
    example: {
      id: STORY.snapshot,
      verbose_name: 'before the upgrade',
      description: '',
      parent: null,
      created: STORY.created,
      current: true,
      memory: false,
      backup: null,
      disks: ['vda'],
      permissions: ['remove', 'revert'],
    },
  },
  {
    id: described(Uuid, 'id of the state'),
    verbose_name: text('its name, which no other state of the VM has'),
    description: text('what people said of it'),
    parent: nullable(named('the state it was made after')),
    created: described(Time, 'when it was made'),
    current: truth('the disks of the VM come after this one'),
    memory: truth('it holds the memory'),
    backup: nullable(described(Uuid, 'the backup file whose increment made it; null for one made by hand')),
    disks: texts('targets of the disks it holds'),
    permissions: Type.Optional(Permissions),
  },
);
