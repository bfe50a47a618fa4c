/**
 * Whether root alone decides what is in a pool's directories. Whoever else may write there can put files under the names of backups
 * and images, or the whole directory out of the way; an administrator is to know it, or to have such a pool refused. Access lists
 * are not looked at, and on a network file system the owners are those that its server tells.
 */
import { realpath, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { BACKUPS_DIR } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';

/** A directory with its owner, as stat(2) tells. */
export interface OwnedDirectory {
  path: string;
  uid: number;
  gid: number;
  mode: number;
  /** It holds the pool's files, and does not only lead to them. */
  holdsFiles: boolean;
}

const ROOT = 0;
const GROUP_WRITES = 0o020;
const OTHERS_WRITE = 0o002;
/** In such a directory only its owner and that of an entry rename or remove the entry. */
const STICKY = 0o1000;

/** Who beside root may change what is in the pool, as a text; undefined when nobody may. Pure. */
export function otherWriters(directories: readonly OwnedDirectory[]): string | undefined {
  for (const { path, uid, gid, mode, holdsFiles } of directories) {
    if (uid !== ROOT) return `${path} belongs to the user ${uid}`;
    if ((mode & STICKY) !== 0 && !holdsFiles) continue;
    if ((mode & OTHERS_WRITE) !== 0) return `${path} may be written to by everybody`;
    if ((mode & GROUP_WRITES) !== 0 && gid !== ROOT) return `${path} may be written to by the group ${gid}`;
  }
  return undefined;
}

/**
 * A pool's directory, its `backups/` if it has one, and all that lead there, by the path of its definition and by the real one.
 * @throws VirtkeepError io_failed
 */
export async function directoriesOf(pool: string): Promise<OwnedDirectory[]> {
  try {
    const real = await realpath(pool);
    const held = [pool, join(pool, BACKUPS_DIR)];
    const leading = new Set([...above(pool), ...above(real)]);
    const found = await Promise.all([
      ...[...leading].map(path => ownerOf(path, false)),
      ...held.map(path => ownerOf(path, true)),
    ]);
    return found.filter(directory => directory !== undefined);
  } catch (error) {
    throw fromIoError(error, 'looking at', pool);
  }
}

function above(path: string): string[] {
  const parent = dirname(path);
  return parent === path ? [] : [...above(parent), parent];
}

/** Undefined when there is none. */
async function ownerOf(path: string, holdsFiles: boolean): Promise<OwnedDirectory | undefined> {
  try {
    const { uid, gid, mode } = await stat(path);
    return { path, uid, gid, mode, holdsFiles };
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
