import Type from 'typebox';
import { BorneTags, Bytes, nullable, oneOf, Permissions, record, ref, Time, Uuid } from './common.ts';
import { GuestInfoSchema } from './guest.ts';

const closed = { additionalProperties: false } as const;
const Named = Type.Object({ id: Uuid, verbose_name: Type.String() }, closed);

const Vdisk = Type.Object(
  {
    id: Uuid,
    verbose_name: Type.String(),
    target_dev: Type.String(),
    target_bus: Type.String(),
    size: Type.Integer({ minimum: 0, description: 'bytes that the guest sees' }),
  },
  closed,
);

export const DomainSchema = record('Domain', {
  id: Uuid,
  verbose_name: Type.String(),
  description: Type.String(),
  status: oneOf(['ACTIVE', 'CREATING', 'FAILED', 'DELETING', 'SERVICE'] as const, {
    description: 'FAILED: its node is not reachable; SERVICE: its node is in service mode',
  }),
  entity_type: oneOf(['domain'] as const),
  user_power_state: Type.Integer({
    minimum: 0,
    maximum: 3,
    description: '0 undefined, 1 off, 2 suspended, 3 on',
  }),
  node: Named,
  parent: nullable(Named),
  template: Type.Boolean(),
  thin: Type.Boolean(),
  memory_count: Type.Integer({ description: 'MiB' }),
  cpu_count: Type.Integer(),
  os_type: Type.String({
    description: 'Windows, Linux, Other; by the definition, else by what the guest told',
  }),
  os_version: Type.String(),
  guest_utils: Type.Object(
    {
      qemu_state: Type.Boolean({ description: 'the guest agent is connected' }),
      version: nullable(Type.String()),
      hostname: nullable(Type.String()),
      ipv4: Type.Array(Type.String()),
    },
    closed,
  ),
  vdisks: Type.Optional(Type.Array(Vdisk)),
  cdroms: Type.Optional(
    Type.Array(
      Type.Object({ target_dev: Type.String(), path: Type.String(), datapool: nullable(Uuid) }, closed),
    ),
  ),
  luns: Type.Optional(Type.Array(Type.Object({ target_dev: Type.String(), source: Type.String() }, closed))),
  mdev_devices: Type.Optional(Type.Array(Type.String())),
  guest_info: Type.Optional(ref(GuestInfoSchema)),
  vdisks_count: Type.Integer(),
  tags: BorneTags,
  hints: Type.Integer(),
  created: Time,
  modified: Time,
  locked_by: nullable(Uuid),
  permissions: Permissions,
  is_ova: Type.Boolean(),
});

/** Fields that only the whole record has. */
export const DEVICE_FIELDS = ['vdisks', 'cdroms', 'luns', 'mdev_devices', 'guest_info'] as const;

const Sizes = Type.Object({ stored: Bytes, virtual: Bytes }, closed);

export const BackupDiskSchema = Type.Object(
  {
    id: Type.String(),
    target_dev: Type.String(),
    target_bus: Type.String(),
    path: Type.String(),
    virtual_size: Bytes,
    size: Bytes,
    excluded: Type.Boolean(),
  },
  closed,
);

export const BackupImageSchema = Type.Object(
  { target_dev: Type.String(), path: Type.String(), size: Bytes, included: Type.Boolean() },
  closed,
);

export const BackupSizesSchema = Sizes;
