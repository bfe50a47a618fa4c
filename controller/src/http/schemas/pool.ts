import Type from 'typebox';
import { BorneTags, Bytes, nullable, oneOf, Permissions, record, Uuid } from './common.ts';

export const PoolSchema = record('DataPool', {
  id: Uuid,
  verbose_name: Type.String(),
  description: Type.String(),
  status: oneOf(['ACTIVE', 'FAILED'] as const, { description: 'ACTIVE: usable on at least one node' }),
  type: Type.String({ description: 'local, nfs, zfs, lvm, thinlvm, lvm-shared, outside, …' }),
  path: Type.String(),
  size: Bytes,
  used_space: Bytes,
  free_space: Bytes,
  shared: Type.Boolean({ description: 'several nodes have it, or it lies on the network' }),
  shared_storage: nullable(
    Type.Object(
      { id: Uuid, verbose_name: Type.String() },
      { additionalProperties: false, description: 'of a shared pool: the pool itself' },
    ),
  ),
  nodes_connected: Type.Array(
    Type.Object(
      {
        id: Uuid,
        verbose_name: Type.String(),
        connection_status: oneOf(['ACTIVE', 'INACTIVE', 'FAILED'] as const, {
          description: 'INACTIVE: stopped or not mounted there; FAILED: the node is away',
        }),
      },
      { additionalProperties: false },
    ),
  ),
  built_in: Type.Boolean(),
  is_base: Type.Boolean({ description: 'base data pool of at least one node' }),
  readonly: Type.Boolean(),
  outside: Type.Boolean(),
  ownership: Type.String({
    description: 'who beside root may change what is in its directories; empty when nobody may',
  }),
  vdisk_count: Type.Integer(),
  file_count: Type.Integer({ description: 'backup files' }),
  zfs_pool: nullable(Type.String()),
  tags: BorneTags,
  permissions: Type.Optional(Permissions),
});
