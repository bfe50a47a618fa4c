/** The record of a backup file in the REST contract, and the row of a file that was seen on a pool; pure. */
import { type BackupConfiguration, ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { BackupFile, DiskImage } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { FileRow, PoolRow } from '../../store/schema.ts';
import { type ExtensionFacts, whyNotExtendable } from './extendable.ts';
import { isOfService, isUnpublished, pointsOf } from './restore-points.ts';
import { isArchive, isConvertible, isDefinition } from './usable.ts';

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
export const FILE_TYPES = ['tar', 'xml', 'OVA', 'OVF', 'vma', 'virtnbdbackup', 'disk'] as const;
export type FileType = (typeof FILE_TYPES)[number];

/** Statuses in which a file can be extended; UPDATING only waits. */
export const EXTENDABLE_STATUSES: readonly FileStatus[] = ['ACTIVE', 'UPDATING'];

export interface FileState {
  /** In the archive, from 1; restores name it. */
  number: number;
  name: string;
  created: string | null;
  memory: boolean;
  consistency: string;
  /** Targets of the disks that were left out on request. */
  excluded_disks: string[];
}

export interface HashSum {
  algorithm: 'SHA-256';
  /** Of the whole file, when it is known. */
  value: string | null;
  verified_at: string | null;
  /** Null before the first verification. */
  ok: boolean | null;
  /** What the last verification found damaged, and the numbers of the states that can be restored all the same. */
  problems: FileProblem[];
  restorable_states: number[] | null;
}

export interface FileProblem {
  member: string;
  reason: string;
}

/** The operation that changes or removes a busy file (UPDATING, DELETING), and what its user asks for the file that results. */
export interface FileWork {
  operation: string;
  /** Null: as it is. */
  description: string | null;
  /** Who works on a file may protect it; what takes the protection off is said of the file itself. */
  protected: true | null;
  /** The file, or restore points of it, go: it may not be protected, nor become so meanwhile. */
  removes?: true;
}

/** What a disk image is. */
export interface FileImage {
  format: string;
  /** Bytes, as a guest sees it and as it takes on its pool. */
  virtual_size: number;
  allocated_size: number;
}

/** What `record_json` holds. */
export interface FileDetails {
  /** Id in the archive's manifest, which copies have too; empty for other kinds, and where it is the record's own. */
  archive_id: string;
  states: FileState[];
  hash_sum: HashSum | null;
  fallback_reason: string;
  /** What is wrong with it, by the scan or by the last verification. */
  damage: string;
  /** The last verification found it damaged; holds until a better one, or until the file changes, wherever it is moved. */
  failed_verification: boolean;
  template_id: string | null;
  is_template: boolean;
  /** Made with the capability to be extended, and the saved states its VM must still have for that. */
  capable: boolean;
  required_states: string[];
  /** Why it is followed by a new one instead of being extended; empty while it may grow. */
  grown: string;
  work: FileWork | null;
  /** Of a disk image that can be taken. */
  image: FileImage | null;
  information: FileInformation | null;
  /** The last `ShowBackupResponse` of the newest state as JSON, without the file; for when no node sees the file. */
  shown: object | null;
}

/** In a row; older ones do not say which disks a state leaves out. */
type KeptDetails = Partial<Omit<FileDetails, 'states'>> & {
  states?: (Omit<FileState, 'excluded_disks'> & Partial<FileState>)[];
};

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
  /** Saved states of the VM that its increments made, oldest first. */
  states_on_vm: string[];
  /** Why it cannot be extended; empty when it can. */
  not_incremental_reason: string;
  datapool: { id: string; verbose_name: string; type: string };
  domain: { id: string; verbose_name: string } | null;
  verbose_name: string;
  created: string;
  hash_sum: HashSum | null;
  states: FileState[];
  additional_flags: { can_be_domained: boolean; can_be_unpacked: boolean; can_be_compressed: boolean };
  information: FileInformation | null;
  image: FileImage | null;
  /** What is wrong with it, by the scan or by the last verification; else empty. */
  damage: string;
  protected: boolean;
  description: string;
  fallback_reason: string;
}

export const NO_DETAILS: FileDetails = {
  archive_id: '',
  states: [],
  hash_sum: null,
  fallback_reason: '',
  damage: '',
  failed_verification: false,
  template_id: null,
  is_template: false,
  capable: false,
  required_states: [],
  grown: '',
  work: null,
  image: null,
  information: null,
  shown: null,
};

export function detailsOf(row: FileRow): FileDetails {
  const details = { ...NO_DETAILS, ...(JSON.parse(row.record_json) as KeptDetails) };
  return {
    ...details,
    states: details.states.map(state => ({ ...state, excluded_disks: state.excluded_disks ?? [] })),
  };
}

/** The time of the last restore point that a file got, RFC 3339; of one whose content is not known, that of the file. */
export const lastPointOf = (row: FileRow): string => detailsOf(row).states.at(-1)?.created ?? row.created;

/** The same of the last that leaves out no disks on request; null: each does. */
export function lastWholePointOf(row: FileRow): string | null {
  const { states } = detailsOf(row);
  const whole = states.findLast(({ excluded_disks }) => excluded_disks.length === 0);
  return whole === undefined && states.length > 0 ? null : (whole?.created ?? row.created);
}

function extensionFacts(details: FileDetails): ExtensionFacts {
  const lastState = details.states.at(-1)?.created ?? null;
  return {
    capable: details.capable,
    lastState,
    requiredStates: details.required_states,
    grown: details.grown,
  };
}

/** What the column `can_be_incremental` holds: whether the VM allows an extension, whatever the file's status. */
export function extendable(row: FileRow, domain: Domain | undefined): boolean {
  return whyNotExtendable(extensionFacts(detailsOf(row)), domain) === '';
}

/** Why the file cannot be extended; empty when it can. @param domain undefined: no node has it. */
export function notIncrementalReason(row: FileRow, domain: Domain | undefined): string {
  const reason = whyNotExtendable(extensionFacts(detailsOf(row)), domain);
  if (reason !== '' || EXTENDABLE_STATUSES.includes(row.status as FileStatus)) return reason;
  return row.status === 'MISSING' ? 'it is missing from its data pool' : `it is ${row.status.toLowerCase()}`;
}

/**
 * The record of the REST contract.
 * @param pool undefined when no row of it is left.
 * @param domain the VM it is a backup of; undefined when no node has it.
 */
export function fileRecord(row: FileRow, pool: PoolRow | undefined, domain: Domain | undefined): FileRecord {
  const details = detailsOf(row);
  const notIncremental = notIncrementalReason(row, domain);
  const isWhole = row.status === 'ACTIVE' && isArchive(row);
  return {
    id: row.id,
    filename: row.filename,
    path: isUnpublished(row.path) ? '' : row.path,
    size: row.size,
    status: row.status as FileStatus,
    assignment_type: 'backup',
    type: row.type as FileType,
    compressed: row.compressed === 1,
    can_be_incremental: notIncremental === '',
    states_on_vm: statesOnVm(details.archive_id || row.id, domain),
    not_incremental_reason: notIncremental,
    datapool: { id: row.pool_id, verbose_name: pool?.verbose_name ?? '', type: pool?.type ?? '' },
    domain: row.domain_id === null ? null : { id: row.domain_id, verbose_name: row.domain_name ?? '' },
    verbose_name: row.verbose_name,
    created: row.created,
    hash_sum: details.hash_sum,
    states: details.states,
    additional_flags: {
      can_be_domained: isWhole || (row.status === 'ACTIVE' && isDefinition(row)),
      can_be_unpacked: isWhole && row.compressed === 1 && isOfService(row, details),
      can_be_compressed: isWhole && row.compressed === 0 && isOfService(row, details),
    },
    information: details.information,
    image: details.image,
    damage: details.damage,
    protected: row.protected === 1,
    description: row.description,
    fallback_reason: details.fallback_reason,
  };
}

function statesOnVm(archiveId: string, domain: Domain | undefined): string[] {
  return (domain?.savedStates ?? []).filter(({ backupId }) => backupId === archiveId).map(({ name }) => name);
}

/**
 * Whether the node could read nothing of the file: somebody writes it, reading failed, it is of a later version, or it is one
 * stream of zstd, or an OVA that is packed as a whole, which the node decompresses only on request. Of a disk image nobody knows more
 * than what its bytes say now.
 */
export const isUnread = ({ damage, archiveId, states, type, compressed, domainName }: BackupFile): boolean =>
  type !== 'disk' &&
  archiveId === '' &&
  states.length === 0 &&
  (damage !== '' || (type === 'tar' && compressed) || (type === 'OVA' && domainName === ''));

/** What an archive itself says, without its hashes. */
type Content = Pick<FileRow, 'domain_id' | 'domain_name' | 'created'> & {
  archive: Pick<
    FileDetails,
    | 'archive_id'
    | 'states'
    | 'fallback_reason'
    | 'template_id'
    | 'is_template'
    | 'capable'
    | 'required_states'
    | 'grown'
    | 'image'
  >;
};

function contentOf(file: BackupFile, created: string): Content {
  const states = file.states.map((state, index) => ({
    number: state.number || index + 1,
    name: state.name,
    created: state.created?.toISOString() ?? null,
    memory: state.memory,
    consistency: state.consistency,
    excluded_disks: state.excludedDisks,
  }));
  return {
    domain_id: file.domainId || null,
    domain_name: file.domainName || null,
    created: file.created?.toISOString() ?? created,
    archive: {
      archive_id: file.archiveId,
      states,
      fallback_reason: file.fallbackReason,
      template_id: file.templateId || null,
      is_template: file.isTemplate,
      capable: file.canBeIncremental,
      required_states: file.requiredStates,
      grown: file.grown,
      image: file.image ? imageOf(file.image) : null,
    },
  };
}

const imageOf = ({ format, virtualSize, allocatedSize }: DiskImage): FileImage => ({
  format,
  virtual_size: Number(virtualSize),
  allocated_size: Number(allocatedSize),
});

function knownContent(row: FileRow): Content {
  const { domain_id, domain_name, created } = row;
  return { domain_id, domain_name, created, archive: detailsOf(row) };
}

/**
 * The row of a file that was seen on a pool. Facts that only the controller has (protection, description, verification,
 * information) are kept from the former row, unless the file itself has changed since. The information of a file that was
 * extended or converted is kept until it is read again. Of a file that could not be read everything is kept.
 */
export function rowOfFile(
  file: BackupFile,
  before: FileRow | undefined,
  domain: Domain | undefined,
  now: string,
): FileRow {
  const kept = before && detailsOf(before);
  const same = before !== undefined && isSameFile(before, kept!, file);
  const unread = before !== undefined && isUnread(file);
  const { archive, ...columns } = unread ? knownContent(before) : contentOf(file, before?.created ?? now);
  // states of the same archive, as they were known
  const former =
    kept !== undefined && (kept.archive_id || before!.id) === (file.archiveId || file.id) ? kept.states : [];
  const hashed = unread ? kept!.hash_sum !== null : file.hashed;
  const failedVerification = same && (kept?.failed_verification ?? false);
  const isKnown = same || unread || goesOn(former, file);
  const details: FileDetails = {
    ...archive,
    states: rememberedExclusions(archive.states, former),
    hash_sum: hashSum(
      hashed,
      same && (failedVerification || isAtPlace(before, file)) ? kept!.hash_sum : null,
    ),
    damage: file.damage || (failedVerification ? (kept?.damage ?? '') : ''),
    failed_verification: failedVerification,
    work: null,
    information: isKnown ? (kept?.information ?? null) : null,
    shown: isKnown ? (kept?.shown ?? null) : null,
  };
  const row: FileRow = {
    id: file.id,
    pool_id: file.poolId,
    path: file.path,
    filename: file.filename,
    verbose_name: (isConvertible(file) && columns.domain_name) || file.filename,
    description: before?.description ?? '',
    size: Number(file.size),
    status: file.damage !== '' || failedVerification ? 'DAMAGED' : 'ACTIVE',
    type: file.type,
    compressed: Number(file.compressed),
    can_be_incremental: 0,
    protected: before?.protected ?? 0,
    ...columns,
    record_json: JSON.stringify(details),
    newest_point: null,
    newest_whole_point: null,
    modified: now,
  };
  return { ...row, ...pointsOf(row, details), can_be_incremental: Number(extendable(row, domain)) };
}

/**
 * Whether the file is as it was, as far as that is told. Its path says nothing: a file may be moved, its pool may get another directory, and
 * each node that has the pool may have it in another one.
 */
function isSameFile(before: FileRow, { archive_id }: FileDetails, file: BackupFile): boolean {
  const isOther = archive_id !== '' && file.archiveId !== '' && archive_id !== file.archiveId;
  return before.size === Number(file.size) && !isOther;
}

/** What was proven of a file that was moved since need not be so where it is now; what was found damaged is no better there. */
const isAtPlace = (before: FileRow, { poolId, filename }: BackupFile): boolean =>
  before.pool_id === poolId && before.filename === filename;

/**
 * What a state left out it never gets back: when nobody says so any more (an older agent, which another node may have, or a state of
 * before that is no longer the newest), it is still so.
 */
function rememberedExclusions(states: readonly FileState[], known: readonly FileState[]): FileState[] {
  const former = new Map(known.map(({ name, excluded_disks: disks }) => [name, disks]));
  return states.map(state =>
    state.excluded_disks.length > 0
      ? state
      : { ...state, excluded_disks: former.get(state.name) ?? state.excluded_disks },
  );
}

/** Whether the archive has all its former states: it was extended or converted. */
const goesOn = (former: readonly FileState[], file: BackupFile): boolean =>
  former.length > 0 && former.every(({ name }, index) => name === file.states[index]?.name);

/** Hashes are recorded, but have not been compared yet. */
export const UNVERIFIED: HashSum = {
  algorithm: 'SHA-256',
  value: null,
  verified_at: null,
  ok: null,
  problems: [],
  restorable_states: null,
};

function hashSum(hashed: boolean, before: HashSum | null): HashSum | null {
  if (!hashed) return before;
  return before ?? UNVERIFIED;
}

/** An agent of the version before says nothing of signatures, and leaves the secrets in the definition: that is not kept. */
export function rememberedShow(shown: ShowBackupResponse): object {
  const xml = shown.signature ? shown.xml : '';
  return ShowBackupResponse.toJSON({ ...shown, xml, file: undefined }) as object;
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
