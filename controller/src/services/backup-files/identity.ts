/**
 * Which record a file on a pool belongs to; pure. An archive has the id of its backup in it, and so have its copies, but a record
 * is for one file. So the place decides first: copies in two pools, or under two names, always are two records. The record with
 * the backup's own id follows an archive that was moved. A file that could not be read does not say which archive it is, and so
 * stays the one that the record at its place has.
 */
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { uuidV5 } from '@virtkeep/shared/ids';
import type { FileRow } from '../../store/schema.ts';
import { detailsOf, isUnread } from './record.ts';

/** The records that a seen file may belong to. */
export interface KnownRecords {
  /** At its place: the same pool and name. */
  atPlace: FileRow | undefined;
  /** With its backup's id, at any place. */
  ofBackup: FileRow | undefined;
  /** The file at the place of `ofBackup` was seen, too, and is of the same archive. */
  isInPlace?: boolean;
}

/** The id in the archive's manifest, the same for all its copies. Agents of the version before send it only as the file's id. */
export const archiveIdOf = (file: Pick<BackupFile, 'id' | 'archiveId'>): string => file.archiveId || file.id;

/** The same of a record; one that was written by the version before has it as its own id, or does not know it. */
export const archiveIdOfRow = (row: FileRow): string => detailsOf(row).archive_id || row.id;

/**
 * @param sees whether the node that reports the file sees this pool, too: then the file counts as the original only when the one
 *   at the record's place is gone
 */
export function recordIdOf(
  file: BackupFile,
  records: KnownRecords,
  sees: (poolId: string) => boolean,
): string {
  const { atPlace, ofBackup, isInPlace = false } = records;
  if (atPlace && isUnread(file)) return atPlace.id;
  const archiveId = archiveIdOf(file);
  const copyId = uuidV5(file.poolId, file.filename);
  if (atPlace && (archiveIdOfRow(atPlace) === archiveId || atPlace.id === copyId)) return atPlace.id;
  if (!ofBackup || file.id !== archiveId) return file.id;
  if (['MISSING', 'CREATING'].includes(ofBackup.status)) return archiveId;
  // the older one of two keeps the id for its node: what is left of a conversion is older than what came of it, and ends before
  const isLeft = isInPlace || file.states.length < detailsOf(ofBackup).states.length;
  return sees(ofBackup.pool_id) && !isLeft ? archiveId : copyId;
}
