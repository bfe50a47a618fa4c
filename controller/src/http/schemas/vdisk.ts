/** Virtual disks (specification 2.5), and the answers of lending them. */
import Type from 'typebox';
import { nullable, oneOf, Permissions, record, ref, Uuid } from './common.ts';
import { SnapshotSchema } from './snapshot.ts';

const closed = { additionalProperties: false } as const;
const Named = Type.Object({ id: Uuid, verbose_name: Type.String() }, closed);

export const VdiskSchema = record('Vdisk', {
  id: Uuid,
  status: oneOf(['ACTIVE', 'FAILED'] as const, {
    description: 'FAILED: the node of its VM is not reachable',
  }),
  verbose_name: Type.String(),
  size: Type.Integer({ minimum: 0, description: 'bytes that the guest sees' }),
  used: Type.Integer({
    minimum: 0,
    description: 'bytes allocated on its data pool, by all its own layers together',
  }),
  datapool: nullable(Type.Object({ id: Uuid, verbose_name: Type.String(), type: Type.String() }, closed)),
  domain: Type.Object(
    { id: Uuid, verbose_name: Type.String() },
    { ...closed, description: 'the VM that owns it' },
  ),
  hints: Type.Integer(),
  shareable: Type.Boolean(),
  virtual_size: Type.Optional(Type.Integer({ minimum: 0, description: 'as size' })),
  target_bus: Type.Optional(Type.String()),
  target_dev: Type.Optional(Type.String()),
  driver_type: Type.Optional(Type.String({ description: 'qcow2, raw' })),
  driver_cache: Type.Optional(Type.String()),
  readonly: Type.Optional(Type.Boolean()),
  snapshots: Type.Optional(Type.Array(Named, { description: 'saved states that hold it, oldest first' })),
  permissions: Type.Optional(Permissions),
});

/** Fields that only the whole record has. */
export const VDISK_DETAILS = [
  'virtual_size',
  'target_bus',
  'target_dev',
  'driver_type',
  'driver_cache',
  'readonly',
  'snapshots',
  'permissions',
] as const;

const LentState = nullable(ref(SnapshotSchema));

export const AttachedVdiskSchema = record('AttachedVdisk', {
  vdisk: Type.String({ ...Uuid, description: 'the original disk' }),
  attached: Type.Object(
    {
      id: Type.String({ ...Uuid, description: 'what the VM reads: a frozen layer, on a zfs pool a clone' }),
      target_dev: Type.String(),
      target_bus: oneOf(['virtio'] as const),
      driver_cache: oneOf(['none'] as const),
      readonly: Type.Boolean(),
    },
    closed,
  ),
  snapshot: LentState,
  warnings: Type.Optional(Type.Array(Type.String())),
});

export const DetachedVdiskSchema = record('DetachedVdisk', {
  vdisk: Type.String({ ...Uuid, description: 'the original disk' }),
  domain: Type.String({ ...Uuid, description: 'the VM that had it' }),
  snapshot: LentState,
});

export const ChangedTemplateSchema = record('ChangedTemplate', {
  template_id: Uuid,
  version: Type.Integer({ minimum: 0 }),
  clones: Type.Array(Uuid, { description: 'thin clones whose disks were made anew' }),
});
