/** What a backup file can give back, and of when; pure. */
import type { FileRow } from '../../store/schema.ts';
import { isArchive } from './usable.ts';

/** Statuses in which the restore points of a file are good: one that is extended or converted still has what it had. */
export const GOOD_STATUSES: readonly string[] = ['ACTIVE', 'UPDATING'];

type Placed = Pick<FileRow, 'type' | 'path' | 'created'>;

interface Content {
  states: readonly { created: string | null }[];
  damage: string;
}

/**
 * The time of its newest restore point, RFC 3339, as the column `newest_point` has it. Null: it has none, since it is no archive, was
 * not published yet, or is damaged.
 */
export function newestPoint({ type, path, created }: Placed, { states, damage }: Content): string | null {
  if (!isArchive({ type }) || damage !== '' || isUnpublished(path)) return null;
  const times = states.flatMap(state => state.created ?? []);
  return times.length === 0 ? created : times.reduce((newest, time) => (time > newest ? time : newest));
}

const UNPUBLISHED = 'unpublished:';

/** Before its file is published a backup has no path; the column must be unique all the same. */
export const unpublishedPath = (fileId: string): string => `${UNPUBLISHED}${fileId}`;

export const isUnpublished = (path: string): boolean => path.startsWith(UNPUBLISHED);
