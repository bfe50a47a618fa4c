import Type from 'typebox';
import { STORY } from '../document/story.ts';
import {
  BorneTags,
  Bytes,
  described,
  exampleOf,
  integer,
  named,
  nullable,
  oneOf,
  Permissions,
  part,
  record,
  ref,
  Time,
  text,
  texts,
  truth,
  Uuid,
} from './common.ts';
import { GuestInfoSchema } from './guest.ts';
import { VERDICT, VERDICT_EXAMPLE } from './protection.ts';

const Vdisk = part({
  id: described(Uuid, 'id of the disk'),
  verbose_name: text('its name'),
  target_dev: text('its target in the definition'),
  target_bus: text('virtio, scsi, sata, …'),
  size: Type.Integer({ minimum: 0, description: 'bytes that the guest sees' }),
});

export const DomainSchema = record(
  'Domain',
  {
    description: 'A VM',
    example: {
      id: STORY.domain,
      verbose_name: 'web-1',
      description: '',
      status: 'ACTIVE',
      entity_type: 'domain',
      user_power_state: 3,
      node: { id: STORY.node, verbose_name: 'n1' },
      parent: null,
      template: false,
      thin: false,
      memory_count: 2048,
      cpu_count: 2,
      os_type: 'Linux',
      os_version: 'Debian GNU/Linux 12 (bookworm)',
      guest_utils: { qemu_state: true, version: '7.2.0', hostname: 'web-1', ipv4: ['192.0.2.80'] },
      vdisks: [
        {
          id: STORY.disk,
          verbose_name: 'web-1-vda',
          target_dev: 'vda',
          target_bus: 'virtio',
          size: 21_474_836_480,
        },
      ],
      cdroms: [],
      luns: [],
      mdev_devices: [],
      guest_info: exampleOf(GuestInfoSchema),
      vdisks_count: 1,
      tags: [{ id: STORY.tag, verbose_name: 'nightly', colour: '#1e90ff' }],
      hints: 0,
      created: STORY.created,
      modified: STORY.changed,
      locked_by: null,
      permissions: ['shutdown', 'reboot', 'suspend', 'reset', 'backup', 'snapshot'],
      protection: VERDICT_EXAMPLE,
      is_ova: false,
    },
  },
  {
    id: described(Uuid, 'id of the VM'),
    verbose_name: text('its name'),
    description: text('what people said of it'),
    status: oneOf(['ACTIVE', 'CREATING', 'FAILED', 'DELETING', 'SERVICE'] as const, {
      description: 'FAILED: its node is not reachable; SERVICE: its node is in service mode',
    }),
    entity_type: oneOf(['domain'] as const, { description: 'always domain' }),
    user_power_state: Type.Integer({
      minimum: 0,
      maximum: 3,
      description: '0 undefined, 1 off, 2 suspended, 3 on',
    }),
    node: named('where it is'),
    parent: nullable(named('the template of a thin clone')),
    template: truth('it is cloned and not started'),
    thin: truth('its disks stand on those of a template'),
    memory_count: integer('MiB'),
    cpu_count: integer('virtual processors'),
    os_type: text('Windows, Linux, Other; by the definition, else by what the guest told'),
    os_version: text('as os_type; empty: not known'),
    guest_utils: part(
      {
        qemu_state: truth('the guest agent is connected'),
        version: nullable(text('of the guest agent')),
        hostname: nullable(text('as the guest told it')),
        ipv4: texts('addresses, as the guest told them'),
      },
      'what the guest told',
    ),
    vdisks: Type.Optional(Type.Array(Vdisk, { description: 'its own disks' })),
    cdroms: Type.Optional(
      Type.Array(
        part({
          target_dev: text('its target in the definition'),
          path: text('the image in it; empty: none'),
          datapool: nullable(described(Uuid, 'the pool that the image lies in')),
        }),
        { description: 'its drives for images' },
      ),
    ),
    luns: Type.Optional(
      Type.Array(
        part({
          target_dev: text('its target in the definition'),
          source: text('the device or address behind it'),
        }),
        { description: 'devices and network disks: in no backup' },
      ),
    ),
    mdev_devices: Type.Optional(texts('mediated devices: with them it is backed up only while it is off')),
    guest_info: Type.Optional(ref(GuestInfoSchema)),
    vdisks_count: integer('number of its own disks'),
    tags: BorneTags,
    hints: integer('always 0'),
    created: described(Time, 'when it was seen first'),
    modified: described(Time, 'when it changed last'),
    locked_by: nullable(described(Uuid, 'the task that works on it')),
    permissions: Permissions,
    protection: part(VERDICT, 'whether it is backed up as it should be'),
    is_ova: truth('always false'),
  },
);

/** Fields that only the whole record has. */
export const DEVICE_FIELDS = ['vdisks', 'cdroms', 'luns', 'mdev_devices', 'guest_info'] as const;

export const BackupDiskSchema = part({
  id: text('id of the disk'),
  target_dev: text('its target in the definition'),
  target_bus: text('virtio, scsi, sata, …'),
  path: text('where it lay; empty: nowhere, in a converted backup'),
  virtual_size: described(Bytes, 'bytes that the guest sees'),
  size: described(Bytes, 'bytes that the archive holds of it'),
  excluded: truth('it was left out'),
});

export const BackupImageSchema = part({
  target_dev: text('the drive it was in'),
  path: text('where it lay; in a converted backup its name'),
  size: described(Bytes, 'its bytes'),
  included: truth('the archive holds it'),
});

export const BackupSizesSchema = part(
  {
    stored: described(Bytes, 'bytes that the archive holds'),
    virtual: described(Bytes, 'bytes that the guest sees'),
  },
  'of all disks together',
);
