/** Backup files as the REST contract tells of them, and how a file seen on a pool becomes a row. Pure. */
import { type BackupConfiguration, ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { FileRow, PoolRow } from '../store/schema.ts';

export const FILE_STATUSES = [
  'CREATING',
  'ACTIVE',
  'UPDATING',
  'FAILED',
  'DELETING',
  'MISSING',
  'DAMAGED',
] as const;
export type FileStatus = (typeof FILE_STATUSES)[number];
export const FILE_TYPES = ['tar', 'xml', 'OVA', 'OVF'] as const;
export type FileType = (typeof FILE_TYPES)[number];

export interface FileState {
  name: string;
  created: string | null;
  memory: boolean;
  consistency: string;
}

export interface HashSum {
  algorithm: 'SHA-256';
  /** Of the whole file, when it is known. */
  value: string | null;
  verified_at: string | null;
  /** Null before the first verification. */
  ok: boolean | null;
}

/** What `record_json` holds. */
export interface FileDetails {
  states: FileState[];
  hash_sum: HashSum | null;
  fallback_reason: string;
  /** What is wrong with it, told by the scan or by the last verification. */
  damage: string;
  /** The last verification found it damaged; holds until a better one, or until the file changes. */
  failed_verification: boolean;
  template_id: string | null;
  is_template: boolean;
  information: FileInformation | null;
  /** The last `ShowBackupResponse` of the newest state as JSON, without the file; for when no node sees the file. */
  shown: object | null;
}

export interface FileInformation {
  disks: {
    id: string;
    target_dev: string;
    target_bus: string;
    path: string;
    virtual_size: number;
    size: number;
    excluded: boolean;
  }[];
  images: { target_dev: string; path: string; size: number; included: boolean }[];
  /** Bytes of all disks in the archive, and as the guest sees them. */
  sizes: { stored: number; virtual: number };
  memory_count: number;
  cpu_count: number;
}

export interface FileRecord {
  id: string;
  filename: string;
  path: string;
  size: number;
  status: FileStatus;
  assignment_type: 'backup';
  type: FileType;
  compressed: boolean;
  can_be_incremental: boolean;
  datapool: { id: string; verbose_name: string; type: string };
  domain: { id: string; verbose_name: string } | null;
  verbose_name: string;
  created: string;
  hash_sum: HashSum | null;
  states: FileState[];
  additional_flags: { can_be_domained: boolean; can_be_unpacked: boolean };
  information: FileInformation | null;
  protected: boolean;
  description: string;
  fallback_reason: string;
}

export const NO_DETAILS: FileDetails = {
  states: [],
  hash_sum: null,
  fallback_reason: '',
  damage: '',
  failed_verification: false,
  template_id: null,
  is_template: false,
  information: null,
  shown: null,
};

export function detailsOf(row: FileRow): FileDetails {
  return { ...NO_DETAILS, ...(JSON.parse(row.record_json) as Partial<FileDetails>) };
}

/** Before its file is published a backup has no path; the column must be unique all the same. */
export const unpublishedPath = (fileId: string): string => `unpublished:${fileId}`;

/** The record of the REST contract. @param pool undefined when no row of it is left. */
export function fileRecord(row: FileRow, pool: PoolRow | undefined): FileRecord {
  const details = detailsOf(row);
  return {
    id: row.id,
    filename: row.filename,
    path: row.path.startsWith('unpublished:') ? '' : row.path,
    size: row.size,
    status: row.status as FileStatus,
    assignment_type: 'backup',
    type: row.type as FileType,
    compressed: row.compressed === 1,
    can_be_incremental: row.can_be_incremental === 1,
    datapool: { id: row.pool_id, verbose_name: pool?.verbose_name ?? '', type: pool?.type ?? '' },
    domain: row.domain_id === null ? null : { id: row.domain_id, verbose_name: row.domain_name ?? '' },
    verbose_name: row.verbose_name,
    created: row.created,
    hash_sum: details.hash_sum,
    states: details.states,
    additional_flags: {
      can_be_domained: row.status === 'ACTIVE' && row.type === 'tar',
      can_be_unpacked: row.status === 'ACTIVE' && row.type === 'tar' && row.compressed === 1,
    },
    information: details.information,
    protected: row.protected === 1,
    description: row.description,
    fallback_reason: details.fallback_reason,
  };
}

/**
 * The row of a file that was seen on a pool. What only the controller knows (protection, description, verification,
 * information) is kept from the row it had, unless the file itself has changed since.
 */
export function rowOfFile(file: BackupFile, before: FileRow | undefined, now: string): FileRow {
  const kept = before && detailsOf(before);
  const same = before !== undefined && before.size === Number(file.size) && before.path === file.path;
  const failedVerification = same && (kept?.failed_verification ?? false);
  const details: FileDetails = {
    states: file.states.map(state => ({
      name: state.name,
      created: state.created?.toISOString() ?? null,
      memory: state.memory,
      consistency: state.consistency,
    })),
    hash_sum: hashSum(file, same ? (kept?.hash_sum ?? null) : null),
    fallback_reason: file.fallbackReason,
    damage: file.damage || (failedVerification ? (kept?.damage ?? '') : ''),
    failed_verification: failedVerification,
    template_id: file.templateId || null,
    is_template: file.isTemplate,
    information: same ? (kept?.information ?? null) : null,
    shown: same ? (kept?.shown ?? null) : null,
  };
  return {
    id: file.id,
    pool_id: file.poolId,
    path: file.path,
    filename: file.filename,
    verbose_name: file.filename,
    description: before?.description ?? '',
    size: Number(file.size),
    status: file.damage !== '' || failedVerification ? 'DAMAGED' : 'ACTIVE',
    type: file.type,
    compressed: Number(file.compressed),
    can_be_incremental: Number(file.canBeIncremental),
    protected: before?.protected ?? 0,
    domain_id: file.domainId || null,
    domain_name: file.domainName || null,
    created: file.created?.toISOString() ?? before?.created ?? now,
    record_json: JSON.stringify(details),
    modified: now,
  };
}

function hashSum(file: BackupFile, before: HashSum | null): HashSum | null {
  if (!file.hashed) return before;
  return before ?? { algorithm: 'SHA-256', value: null, verified_at: null, ok: null };
}

export function rememberedShow(shown: ShowBackupResponse): object {
  return ShowBackupResponse.toJSON({ ...shown, file: undefined }) as object;
}

export function informationOf(configuration: BackupConfiguration): FileInformation {
  const disks = configuration.disks.map(disk => ({
    id: disk.id,
    target_dev: disk.targetDev,
    target_bus: disk.targetBus,
    path: disk.path,
    virtual_size: Number(disk.virtualSize),
    size: Number(disk.size),
    excluded: disk.excluded,
  }));
  const images = configuration.images.map(image => ({
    target_dev: image.targetDev,
    path: image.path,
    size: Number(image.size),
    included: image.included,
  }));
  const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);
  return {
    disks,
    images,
    sizes: { stored: sum(disks.map(disk => disk.size)), virtual: sum(disks.map(disk => disk.virtual_size)) },
    memory_count: Number(configuration.memoryCount),
    cpu_count: configuration.cpuCount,
  };
}
