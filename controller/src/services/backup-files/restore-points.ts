/** What a backup file can give back, and of when; pure. */
import type { FileRow } from '../../store/schema.ts';
import { isArchive } from './usable.ts';

/** Statuses in which the restore points of a file are good: one that is extended or converted still has what it had. */
export const GOOD_STATUSES: readonly string[] = ['ACTIVE', 'UPDATING'];

type Placed = Pick<FileRow, 'id' | 'type' | 'path' | 'created'>;

interface Content {
  archive_id: string;
  states: readonly { created: string | null }[];
  damage: string;
}

/**
 * The time of its newest restore point, RFC 3339, as the column `newest_point` has it. Null: it has none, since it is no archive, was
 * not published yet, is damaged, or nothing that is its own says of when it is: a copy of an old one would pass for new.
 */
export function newestPoint(file: Placed, content: Content): string | null {
  const { path, created } = file;
  if (!isArchive(file) || content.damage !== '' || isUnpublished(path) || !isOfService(file, content))
    return null;
  const times = content.states.flatMap(state => state.created ?? []);
  return times.length === 0 ? created : times.reduce((newest, time) => (time > newest ? time : newest));
}

/**
 * It has a manifest that describes it: what others made, and what was packed again, is restored and not converted. Its id is that of
 * its name then, as it is of a copy; agents of the version before tell the manifest's id as the file's.
 */
export const isOfService = (
  { id }: Pick<FileRow, 'id'>,
  { archive_id: archiveId }: Pick<Content, 'archive_id'>,
): boolean => archiveId !== '' || id.charAt(UUID_VERSION_AT) !== '5';

/** Where a UUID has the digit of its version: 5 is one that was made of a name. */
const UUID_VERSION_AT = 14;

const UNPUBLISHED = 'unpublished:';

/** Before its file is published a backup has no path; the column must be unique all the same. */
export const unpublishedPath = (fileId: string): string => `${UNPUBLISHED}${fileId}`;

export const isUnpublished = (path: string): boolean => path.startsWith(UNPUBLISHED);
