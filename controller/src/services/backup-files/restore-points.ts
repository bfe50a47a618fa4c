/** What a backup file can give back, and of when; pure. */
import type { FileRow } from '../../store/schema.ts';
import { isArchive } from './usable.ts';

/** Statuses in which the restore points of a file are good: one that is extended or converted still has what it had. */
export const GOOD_STATUSES: readonly string[] = ['ACTIVE', 'UPDATING'];

type Placed = Pick<FileRow, 'id' | 'type' | 'path' | 'created'>;

interface Content {
  archive_id: string;
  states: readonly { created: string | null; excluded_disks?: readonly string[] }[];
  damage: string;
}

const NO_POINTS = { newest_point: null, newest_whole_point: null };

/**
 * The columns with the time of its newest restore point, RFC 3339, and of the newest that leaves out no disks on request; one of which that
 * is not known leaves out none. Null: it has none, since it is no archive, was not published yet, is damaged, or nothing that is its own
 * says of when it is: a copy of an old one would pass for new.
 */
export function pointsOf(
  file: Placed,
  content: Content,
): Pick<FileRow, 'newest_point' | 'newest_whole_point'> {
  const { path, created } = file;
  if (!isArchive(file) || content.damage !== '' || isUnpublished(path) || !isOfService(file, content))
    return NO_POINTS;
  const { states } = content;
  const whole = states.filter(state => (state.excluded_disks ?? []).length === 0);
  return {
    newest_point: newestOf(states, created),
    newest_whole_point: whole.length === 0 && states.length > 0 ? null : newestOf(whole, created),
  };
}

/** @param otherwise of a file of whose states no time is known */
function newestOf(states: Content['states'], otherwise: string): string {
  const times = states.flatMap(state => state.created ?? []);
  return times.length === 0 ? otherwise : times.reduce((newest, time) => (time > newest ? time : newest));
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
