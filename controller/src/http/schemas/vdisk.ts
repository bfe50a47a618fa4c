/** Virtual disks (specification 2.5), and the answers of lending them. */
import Type from 'typebox';
import { STORY } from '../document/story.ts';
import {
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
  text,
  texts,
  truth,
  Uuid,
} from './common.ts';
import { SnapshotSchema } from './snapshot.ts';

export const VdiskSchema = record(
  'Vdisk',
  {
    description: 'A disk of a VM',
    example: {
      id: STORY.disk,
      status: 'ACTIVE',
      verbose_name: 'web-1-vda',
      size: 21_474_836_480,
      used: 5_368_709_120,
      datapool: { id: STORY.pool, verbose_name: 'backups', type: 'nfs' },
      domain: { id: STORY.domain, verbose_name: 'web-1' },
      hints: 0,
      shareable: false,
      virtual_size: 21_474_836_480,
      target_bus: 'virtio',
      target_dev: 'vda',
      driver_type: 'qcow2',
      driver_cache: 'none',
      readonly: false,
      snapshots: [{ id: STORY.snapshot, verbose_name: 'before the upgrade' }],
      permissions: ['attach'],
    },
  },
  {
    id: described(Uuid, 'id of the disk'),
    status: oneOf(['ACTIVE', 'FAILED'] as const, {
      description: 'FAILED: the node of its VM is not reachable',
    }),
    verbose_name: text('its name'),
    size: Type.Integer({ minimum: 0, description: 'bytes that the guest sees' }),
    used: Type.Integer({
      minimum: 0,
      description: 'bytes allocated on its data pool, by all its own layers together',
    }),
    datapool: nullable(
      part({
        id: described(Uuid, 'id of the pool'),
        verbose_name: text('its name'),
        type: text('as in its record'),
      }),
      'where it lies; null: outside of all data pools',
    ),
    domain: named('the VM that owns it'),
    hints: integer('always 0'),
    shareable: truth('several VMs may write to it'),
    virtual_size: Type.Optional(Type.Integer({ minimum: 0, description: 'as size' })),
    target_bus: Type.Optional(text('virtio, scsi, sata, …')),
    target_dev: Type.Optional(text('its target in the definition of the VM')),
    driver_type: Type.Optional(text('qcow2, raw')),
    driver_cache: Type.Optional(text('none, writeback, …; empty: the default')),
    readonly: Type.Optional(truth('the VM cannot write to it')),
    snapshots: Type.Optional(
      Type.Array(named('a saved state'), { description: 'saved states that hold it, oldest first' }),
    ),
    permissions: Type.Optional(Permissions),
  },
);

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

const LentState = nullable(
  ref(SnapshotSchema),
  'the saved state of its VM that is lent; null: there is none, or none any more',
);

const lentState = {
  ...exampleOf(SnapshotSchema),
  verbose_name: 'vdisks_attached_to_another_domains',
  permissions: [],
};

export const AttachedVdiskSchema = record(
  'AttachedVdisk',
  {
    description: 'A disk of another VM that this one has now',
    example: {
      vdisk: STORY.disk,
      attached: {
        id: STORY.layer,
        target_dev: 'vdb',
        target_bus: 'virtio',
        driver_cache: 'none',
        readonly: true,
      },
      snapshot: lentState,
    },
  },
  {
    vdisk: described(Uuid, 'the original disk'),
    attached: part(
      {
        id: described(Uuid, 'what the VM reads: a frozen layer, on a zfs pool a clone'),
        target_dev: text('its target in the definition of the VM'),
        target_bus: oneOf(['virtio'] as const, { description: 'always virtio' }),
        driver_cache: oneOf(['none'] as const, { description: 'always none' }),
        readonly: truth('always true'),
      },
      'the disk as the VM has it',
    ),
    snapshot: LentState,
    warnings: Type.Optional(texts('what the caller should know')),
  },
);

export const DetachedVdiskSchema = record(
  'DetachedVdisk',
  {
    description: 'A disk of another VM that this one has no more',
    example: { vdisk: STORY.disk, domain: STORY.borrower, snapshot: null },
  },
  {
    vdisk: described(Uuid, 'the original disk'),
    domain: described(Uuid, 'the VM that had it'),
    snapshot: LentState,
  },
);

export const ChangedTemplateSchema = record(
  'ChangedTemplate',
  {
    description: 'A template that has the changes of one of its thin clones',
    example: { template_id: STORY.template, version: 2, clones: [STORY.domain] },
  },
  {
    template_id: described(Uuid, 'id of the template'),
    version: Type.Integer({ minimum: 0, description: 'how often it was changed' }),
    clones: Type.Array(Uuid, { description: 'thin clones whose disks were made anew' }),
  },
);
