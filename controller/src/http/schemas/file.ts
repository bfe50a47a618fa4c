import Type from 'typebox';
import { FILE_STATUSES, FILE_TYPES } from '../../services/backup-files/record.ts';
import { STORY } from '../document/story.ts';
import {
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
import { BackupDiskSchema, BackupImageSchema, BackupSizesSchema } from './domain.ts';

const Problems = Type.Array(
  part({ member: text('the member of the archive'), reason: text('what is wrong with it') }),
  { description: 'what a verification found' },
);
const Restorable = nullable(
  Type.Array(Type.Integer(), { description: 'numbers of the states that can be restored; null: not known' }),
);
const disks = Type.Array(BackupDiskSchema, { description: 'disks of the VM' });
const images = Type.Array(BackupImageSchema, { description: 'ISO images of the VM' });

const exampleDisks = [
  {
    id: STORY.disk,
    target_dev: 'vda',
    target_bus: 'virtio',
    path: `/srv/vms/${STORY.disk}.qcow2`,
    virtual_size: 21_474_836_480,
    size: 5_368_709_120,
    excluded: false,
  },
];
const exampleSizes = { stored: 5_368_709_120, virtual: 21_474_836_480 };

export const FileSchema = record(
  'BackupFile',
  {
    description: 'A backup file',
    example: {
      id: STORY.file,
      filename: 'web-1.tar',
      path: '/srv/backups/backups/web-1.tar',
      size: 5_368_719_360,
      status: 'ACTIVE',
      assignment_type: 'backup',
      type: 'tar',
      compressed: false,
      can_be_incremental: true,
      states_on_vm: [STORY.snapshot],
      not_incremental_reason: '',
      datapool: { id: STORY.pool, verbose_name: 'backups', type: 'nfs' },
      domain: { id: STORY.domain, verbose_name: 'web-1' },
      verbose_name: 'web-1',
      created: STORY.changed,
      hash_sum: null,
      states: [
        {
          ...{ number: 1, name: 'backup', created: STORY.changed, memory: false, consistency: 'quiesced' },
          excluded_disks: [],
        },
      ],
      additional_flags: { can_be_domained: true, can_be_unpacked: false, can_be_compressed: true },
      information: {
        disks: exampleDisks,
        images: [],
        sizes: exampleSizes,
        memory_count: 2048,
        cpu_count: 2,
      },
      image: null,
      damage: '',
      protected: false,
      description: '',
      fallback_reason: '',
      permissions: ['update', 'refresh', 'verify', 'remove', 'compress', 'restore', 'download'],
    },
  },
  {
    id: described(Uuid, 'id of the file'),
    filename: text('its name'),
    path: text('where it is on its nodes'),
    size: described(Bytes, 'its bytes'),
    status: oneOf(FILE_STATUSES, {
      description: 'CREATING, UPDATING, DELETING: a task is at it; MISSING: it was not found where it lay',
    }),
    assignment_type: oneOf(['backup'] as const, { description: 'always backup' }),
    type: oneOf(FILE_TYPES, {
      description:
        'tar: an archive of this product or its family; vma: one of Proxmox VE; virtnbdbackup: a directory that it has ' +
        'written, for which its first definition stands; disk: a disk image that stands alone',
    }),
    compressed: truth('with zstd'),
    can_be_incremental: truth('it can be extended now'),
    states_on_vm: texts(
      'saved states on the VM that increments of this archive made, oldest first: without hold_states the current one and at most two ' +
        'before it. Of several archives of a VM each has its own',
    ),
    not_incremental_reason: text('why it cannot; empty when it can'),
    datapool: part(
      {
        id: described(Uuid, 'id of the pool'),
        verbose_name: text('its name'),
        type: text('as in its record'),
      },
      'where it lies',
    ),
    domain: nullable(named('the VM that it is a backup of')),
    verbose_name: text('name of the VM when it was backed up'),
    created: described(Time, 'when it was made'),
    hash_sum: nullable(
      part(
        {
          algorithm: text('SHA-256'),
          value: nullable(text('of the whole file')),
          verified_at: nullable(described(Time, 'when it was verified last')),
          ok: nullable(
            truth(
              'what the verification said; null: there was none, or it could compare some members with nothing',
            ),
          ),
          problems: Problems,
          restorable_states: Restorable,
        },
        'its hash and its last verification; null: it has neither',
      ),
    ),
    states: Type.Array(
      part({
        number: Type.Integer({ minimum: 1, description: 'by which a restore names it' }),
        name: text('its name'),
        created: nullable(described(Time, 'when it was made')),
        memory: truth('it holds the memory'),
        consistency: text('quiesced, memory, crash, off'),
        excluded_disks: Type.Array(Type.String(), {
          description:
            'targets of the disks that were left out on request; empty of one that was made before this was noted',
        }),
      }),
      { description: 'states of the VM that can be restored, oldest first' },
    ),
    additional_flags: part(
      {
        can_be_domained: truth('a VM can be restored from it'),
        can_be_unpacked: truth('it is compressed, and can be made plain'),
        can_be_compressed: truth('it is plain, and can be compressed'),
      },
      'what can be done with it by what it is',
    ),
    information: nullable(
      part(
        {
          disks,
          images,
          sizes: BackupSizesSchema,
          memory_count: integer('MiB'),
          cpu_count: integer('virtual processors'),
        },
        'of the VM at the newest state; null until it was read',
      ),
    ),
    image: nullable(
      part(
        {
          format: text('qcow2, raw, vmdk, vhdx, vhd, vdi'),
          virtual_size: described(Bytes, 'as a guest sees it'),
          allocated_size: described(Bytes, 'that it takes on its pool'),
        },
        'what a disk image is; null of other files, and of an image that cannot be taken',
      ),
    ),
    damage: text('what is wrong with it, as the scan or the last verification found; else empty'),
    protected: truth('it cannot be removed'),
    description: text('what people said of it'),
    fallback_reason: text('why a new file was made where an increment was asked for; else empty'),
    permissions: Type.Optional(Permissions),
  },
);

const SignatureSchema = part(
  {
    trust: oneOf(['own', 'fleet', 'foreign'] as const, { description: 'whether somebody vouches for it' }),
    signer: nullable(text('id of the node that signed it last')),
    reason: nullable(text('why it is foreign')),
    covers_content: truth(
      'it stands for the bytes of disks and images, too: the archive was made with hash_sum',
    ),
  },
  'who vouches for the archive: own, the node that read it, for all of it; fleet, another node of this controller, too, or an administrator who had ' +
    'it signed; foreign, nobody: ' +
    'it is restored with allow_foreign only',
);
const exampleSignature = {
  trust: 'own' as const,
  signer: STORY.node,
  reason: null,
  covers_content: false,
};

/** The answer of a verification: the file as it counts now, and what was found. */
export const VerifiedFileSchema = record(
  'VerifiedFile',
  {
    description: 'A backup file that was verified',
    example: {
      ...exampleOf(FileSchema),
      verified_at: STORY.ended,
      ok: true,
      hashed: false,
      unproven_members: 2,
      problems: [],
      restorable_states: [1],
      signature: exampleSignature,
    },
  },
  {
    ...FileSchema.properties,
    verified_at: described(Time, 'when it was verified'),
    ok: truth('nothing is wrong with it'),
    hashed: truth('SHA-256 was compared too, not only the checksums'),
    unproven_members: Type.Integer({
      minimum: 0,
      description:
        'members that could be read and have nothing to be compared with: an uncompressed backup without hash_sum',
    }),
    problems: Problems,
    restorable_states: Restorable,
    signature: SignatureSchema,
  },
);

const SignedBy = nullable(
  text(
    'of an OVF or OVA: subject of the certificate that signs its manifest, when an authority that the node trusts vouches for it; what comes ' +
      'of it is foreign all the same',
  ),
);

/** The answer of a conversion: the backup, and what was found and done on the way. */
export const ConvertedFileSchema = record(
  'ConvertedFile',
  {
    description: 'A backup that was made of a file of another product',
    example: { ...exampleOf(FileSchema), signed_by: null, drivers_injected: false },
  },
  {
    ...FileSchema.properties,
    signed_by: SignedBy,
    drivers_injected: truth('virt-v2v has put the drivers of virtio into the guest'),
  },
);

/** The answer of an export: the new file, and all that lies beside it. */
export const ExportedFileSchema = record(
  'ExportedFile',
  {
    description: 'An OVA, an OVF descriptor or a domain XML that a backup was exported to',
    example: {
      ...exampleOf(FileSchema),
      ...{ type: 'OVA', filename: 'web-1.ova' },
      path: '/srv/backup/backups/web-1.ova',
      files: ['/srv/backup/backups/web-1.ova'],
    },
  },
  {
    ...FileSchema.properties,
    path: text('path of the OVA, or of the directory, on the node'),
    files: texts('paths of all files that were written'),
  },
);

/** The answer of dropping restore points: the file as it is now. */
export const TrimmedFileSchema = record(
  'TrimmedFile',
  {
    description: 'A backup file of which the oldest restore points were dropped',
    example: { ...exampleOf(FileSchema), removed_states: [1, 2] },
  },
  {
    ...FileSchema.properties,
    removed_states: Type.Array(Type.Integer(), { description: 'numbers of the restore points that went' }),
  },
);

const SystemSchema = part({
  id: text('by which it is chosen'),
  verbose_name: text('its name'),
  os_type: text('Windows, Linux, Other'),
  cpu_count: integer('virtual processors'),
  memory_count: integer('MiB'),
  disk_count: integer('its disks'),
  configurations: Type.Array(
    part({
      id: text('by which it is chosen'),
      label: text('its name for people'),
      description: text('what it is for'),
      default: truth('it is taken when none is chosen'),
    }),
    { description: 'those that can be chosen' },
  ),
});

export const ShownBackupSchema = record(
  'ShownBackup',
  {
    description: 'What a backup would restore',
    example: {
      file: exampleOf(FileSchema),
      configuration: {
        domain: STORY.domain,
        verbose_name: 'web-1',
        description: '',
        memory_count: 2048,
        cpu_count: 2,
        template: false,
        parent: null,
        os_type: 'Linux',
        machine: 'pc-q35-7.2',
        nvram: false,
        tpm: false,
        disks: exampleDisks,
        images: [],
        sizes: exampleSizes,
        luns: [],
        snapshots: [],
        macs: ['52:54:00:12:34:56'],
      },
      members: [{ name: `disks/${STORY.disk}.qcow2`, kind: 'disk', size: 5_368_709_120 }],
      warnings: [],
      xml: "<domain type='kvm'>…</domain>",
      signature: exampleSignature,
      signed_by: null,
      systems: [],
      networks: [],
    },
  },
  {
    file: ref(FileSchema),
    configuration: nullable(
      part(
        {
          domain: nullable(text('id of the VM')),
          verbose_name: text('its name'),
          description: text('what people said of it'),
          memory_count: integer('MiB'),
          cpu_count: integer('virtual processors'),
          template: truth('it is a template'),
          parent: nullable(text('template of a thin clone')),
          os_type: text('Windows, Linux, Other'),
          machine: text('machine type'),
          nvram: truth('with variables of its firmware'),
          tpm: truth('with the state of a TPM'),
          disks,
          images,
          sizes: BackupSizesSchema,
          luns: texts('devices and network disks, which no backup holds'),
          snapshots: texts('saved states of the VM that come back with it'),
          macs: texts('addresses of its network cards'),
        },
        'the VM at that state; null: it cannot be read, or none of several was chosen',
      ),
    ),
    members: Type.Array(
      part({
        name: text('by which a download takes it'),
        kind: text('what it is'),
        size: described(Bytes, 'its bytes, uncompressed'),
      }),
      { description: 'what the archive holds, by the names that a download takes' },
    ),
    warnings: Type.Array(part({ key: text('its stable name'), text: text('in words') }), {
      description: 'what a restore would have to do without',
    }),
    xml: text('the domain XML of the state, without its secrets, which the file itself has'),
    signature: SignatureSchema,
    signed_by: SignedBy,
    systems: Type.Array(SystemSchema, {
      description:
        'VMs of an OVF or OVA, each in its default configuration; of several without a choice nothing else is shown. Empty for other files',
    }),
    networks: texts(
      'networks and bridges that the adapters of the VM are connected to in a foreign file: those that can be mapped. Empty for archives',
    ),
  },
);
