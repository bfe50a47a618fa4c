import Type from 'typebox';
import { FILE_STATUSES, FILE_TYPES } from '../../services/catalogue/record.ts';
import { Bytes, nullable, oneOf, Permissions, record, ref, Time, Uuid } from './common.ts';
import { BackupDiskSchema, BackupImageSchema, BackupSizesSchema } from './domain.ts';

const closed = { additionalProperties: false } as const;

const Problems = Type.Array(Type.Object({ member: Type.String(), reason: Type.String() }, closed));
const Restorable = nullable(
  Type.Array(Type.Integer(), { description: 'numbers of the states that can be restored; null: not known' }),
);

export const FileSchema = record('BackupFile', {
  id: Uuid,
  filename: Type.String(),
  path: Type.String(),
  size: Bytes,
  status: oneOf(FILE_STATUSES),
  assignment_type: oneOf(['backup'] as const),
  type: oneOf(FILE_TYPES),
  compressed: Type.Boolean(),
  can_be_incremental: Type.Boolean({ description: 'it can be extended now' }),
  states_on_vm: Type.Array(Type.String(), {
    description:
      'saved states on the VM that increments of this archive made, oldest first: without hold_states the current one and at most two ' +
      'before it. Of several archives of a VM each has its own',
  }),
  not_incremental_reason: Type.String({ description: 'why it cannot; empty when it can' }),
  datapool: Type.Object({ id: Uuid, verbose_name: Type.String(), type: Type.String() }, closed),
  domain: nullable(Type.Object({ id: Uuid, verbose_name: Type.String() }, closed)),
  verbose_name: Type.String(),
  created: Time,
  hash_sum: nullable(
    Type.Object(
      {
        algorithm: Type.String(),
        value: nullable(Type.String()),
        verified_at: nullable(Time),
        ok: nullable(Type.Boolean()),
        problems: Problems,
        restorable_states: Restorable,
      },
      closed,
    ),
  ),
  states: Type.Array(
    Type.Object(
      {
        number: Type.Integer({ minimum: 1, description: 'by which a restore names it' }),
        name: Type.String(),
        created: nullable(Time),
        memory: Type.Boolean(),
        consistency: Type.String({ description: 'quiesced, memory, crash, off' }),
      },
      closed,
    ),
  ),
  additional_flags: Type.Object({ can_be_domained: Type.Boolean(), can_be_unpacked: Type.Boolean() }, closed),
  information: nullable(
    Type.Object(
      {
        disks: Type.Array(BackupDiskSchema),
        images: Type.Array(BackupImageSchema),
        sizes: BackupSizesSchema,
        memory_count: Type.Integer({ description: 'MiB' }),
        cpu_count: Type.Integer(),
      },
      { ...closed, description: 'null until it was read' },
    ),
  ),
  protected: Type.Boolean(),
  description: Type.String(),
  fallback_reason: Type.String(),
  permissions: Type.Optional(Permissions),
});

const SignatureSchema = Type.Object(
  {
    trust: oneOf(['own', 'fleet', 'foreign'] as const),
    signer: nullable(Type.String({ description: 'id of the node that signed it last' })),
    reason: nullable(Type.String({ description: 'why it is foreign' })),
    covers_content: Type.Boolean({
      description: 'it stands for the bytes of disks and images, too: the archive was made with hash_sum',
    }),
  },
  {
    ...closed,
    description:
      'who vouches for the archive: own, the node that read it, for all of it; fleet, another node of this controller, too, or an administrator who had ' +
      'it signed; foreign, nobody: ' +
      'it is restored with allow_foreign only',
  },
);

/** The answer of a verification: the file as it counts now, and what was found. */
export const VerifiedFileSchema = record('VerifiedFile', {
  ...FileSchema.properties,
  verified_at: Time,
  ok: Type.Boolean(),
  hashed: Type.Boolean({ description: 'SHA-256 was compared too, not only the checksums' }),
  problems: Problems,
  restorable_states: Restorable,
  signature: SignatureSchema,
});

export const ShownBackupSchema = record('ShownBackup', {
  file: ref(FileSchema),
  configuration: nullable(
    Type.Object(
      {
        domain: nullable(Type.String()),
        verbose_name: Type.String(),
        description: Type.String(),
        memory_count: Type.Integer({ description: 'MiB' }),
        cpu_count: Type.Integer(),
        template: Type.Boolean(),
        parent: nullable(Type.String({ description: 'template of a thin clone' })),
        os_type: Type.String(),
        machine: Type.String(),
        nvram: Type.Boolean(),
        tpm: Type.Boolean(),
        disks: Type.Array(BackupDiskSchema),
        images: Type.Array(BackupImageSchema),
        sizes: BackupSizesSchema,
        luns: Type.Array(Type.String()),
        snapshots: Type.Array(Type.String()),
        macs: Type.Array(Type.String()),
      },
      closed,
    ),
  ),
  members: Type.Array(Type.Object({ name: Type.String(), kind: Type.String(), size: Bytes }, closed), {
    description: 'what the archive holds, by the names that a download takes',
  }),
  warnings: Type.Array(Type.Object({ key: Type.String(), text: Type.String() }, closed)),
  xml: Type.String({
    description: 'the domain XML of the state, without its secrets, which the file itself has',
  }),
  signature: SignatureSchema,
});
