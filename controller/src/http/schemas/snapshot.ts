import Type from 'typebox';
import { nullable, Permissions, record, Time, Uuid } from './common.ts';

export const SnapshotSchema = record('Snapshot', {
  id: Uuid,
  verbose_name: Type.String(),
  description: Type.String(),
  parent: nullable(
    Type.Object(
      { id: Uuid, verbose_name: Type.String() },
      { additionalProperties: false, description: 'the state it was made after' },
    ),
  ),
  created: Time,
  current: Type.Boolean({ description: 'the disks of the VM come after this one' }),
  memory: Type.Boolean({ description: 'it holds the memory' }),
  backup: nullable(
    Type.String({
      ...Uuid,
      description: 'the backup file whose increment made it; null for one made by hand',
    }),
  ),
  disks: Type.Array(Type.String(), { description: 'targets of the disks it holds' }),
  permissions: Type.Optional(Permissions),
});
