import Type from 'typebox';
import { FILE_STATUSES, FILE_TYPES } from '../../services/file-record.ts';
import { Bytes, nullable, oneOf, record, ref, Time, Uuid } from './common.ts';
import { BackupDiskSchema, BackupImageSchema, BackupSizesSchema } from './domain.ts';

const closed = { additionalProperties: false } as const;

export const FileSchema = record('BackupFile', {
  id: Uuid,
  filename: Type.String(),
  path: Type.String(),
  size: Bytes,
  status: oneOf(FILE_STATUSES),
  assignment_type: oneOf(['backup'] as const),
  type: oneOf(FILE_TYPES),
  compressed: Type.Boolean(),
  can_be_incremental: Type.Boolean(),
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
      },
      closed,
    ),
  ),
  states: Type.Array(
    Type.Object(
      {
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
  warnings: Type.Array(Type.Object({ key: Type.String(), text: Type.String() }, closed)),
  xml: Type.String({ description: 'the domain XML of the state' }),
});
