/** What the files that a scan has found make of the records that are known; pure. */
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { uuidV5 } from '@virtkeep/shared/ids';
import type { FileRow } from '../../store/schema.ts';
import { archiveIdOf, recordIdOf } from './identity.ts';
import { placeOf } from './open-scans.ts';
import { rowOfFile } from './record.ts';

/** What a file may be told by besides its own bytes. */
export interface Surroundings {
  /** Whether the node that tells of it sees this pool. */
  sees: (poolId: string) => boolean;
  /** What was found with it, by place. */
  beside: ReadonlyMap<string, BackupFile>;
  domainOf: (id: string) => Domain | undefined;
  /** RFC 3339. */
  now: string;
}

export interface SeenFile {
  file: BackupFile;
  before: FileRow | undefined;
  row: FileRow;
}

export interface FoundFile extends SeenFile {
  /** Its record is new or was at this place already, and no other is. */
  isAtItsPlace: boolean;
}

/** Records, as they are when what was found before is written. */
export class KnownRows {
  readonly #byId = new Map<string, FileRow>();
  readonly #byPlace = new Map<string, FileRow>();

  constructor(rows: readonly FileRow[]) {
    for (const row of rows) {
      this.#byId.set(row.id, row);
      this.#byPlace.set(placeOf(row.pool_id, row.filename), row);
    }
  }

  of(id: string): FileRow | undefined {
    return this.#byId.get(id);
  }

  at({ poolId, filename }: BackupFile): FileRow | undefined {
    return this.#byPlace.get(placeOf(poolId, filename));
  }

  /** It is written, and so any other is removed that was at its place. */
  put(row: FileRow): void {
    const former = this.#byId.get(row.id);
    if (former) this.#byPlace.delete(placeOf(former.pool_id, former.filename));
    const place = placeOf(row.pool_id, row.filename);
    const replaced = this.#byPlace.get(place);
    if (replaced) this.#byId.delete(replaced.id);
    this.#byId.set(row.id, row);
    this.#byPlace.set(place, row);
  }
}

/** Ids of the records that a file may belong to, besides that of the one at its place. */
export const possibleIds = (file: BackupFile): string[] => [
  file.id,
  archiveIdOf(file),
  uuidV5(file.poolId, file.filename),
];

export const besideOf = (files: readonly BackupFile[]): ReadonlyMap<string, BackupFile> =>
  new Map(files.map(file => [placeOf(file.poolId, file.filename), file]));

/** The id of the record that a file belongs to. */
export function idOfFound(
  file: BackupFile,
  known: KnownRows,
  { sees, beside }: Pick<Surroundings, 'sees' | 'beside'>,
): string {
  const atPlace = known.at(file);
  const ofBackup = known.of(archiveIdOf(file));
  const other =
    ofBackup && ofBackup.id !== atPlace?.id
      ? beside.get(placeOf(ofBackup.pool_id, ofBackup.filename))
      : undefined;
  const isInPlace = other !== undefined && archiveIdOf(other) === archiveIdOf(file);
  return recordIdOf(file, { atPlace, ofBackup, isInPlace }, sees);
}

export function foundFile(file: BackupFile, known: KnownRows, surroundings: Surroundings): FoundFile {
  const id = idOfFound(file, known, surroundings);
  const before = known.of(id);
  return {
    ...seenFile(file, { id, before }, surroundings),
    isAtItsPlace: known.at(file)?.id === before?.id && (before === undefined || before.path === file.path),
  };
}

export function seenFile(
  file: BackupFile,
  { id, before }: { id: string; before: FileRow | undefined },
  { domainOf, now }: Pick<Surroundings, 'domainOf' | 'now'>,
): SeenFile {
  const domain = domainOf(file.domainId || (before?.domain_id ?? ''));
  return { file, before, row: rowOfFile({ ...file, id }, before, domain, now) };
}

/** Whether there is anything to write. */
export const isOther = ({ before, row }: SeenFile): boolean =>
  before === undefined ||
  (Object.keys(row) as (keyof FileRow)[]).some(
    column => column !== 'modified' && row[column] !== before[column],
  );

/** An operation changes or removes it: it is left to that. */
export const isInWork = (row: FileRow | undefined): boolean =>
  row?.status === 'DELETING' || row?.status === 'UPDATING';
