/**
 * Directories that an operation made go when nothing is in them: whoever has put a file there keeps it. Whoever may write to the pool may
 * have put a link in the place of one: nothing is looked at behind it.
 */
import { join } from 'node:path';
import { lstat, readdir, rmdir } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';
import { syncDirectoryOf } from '@virtkeep/shared/files';

/** Deeper than that nobody makes directories for images. */
const MAX_DEPTH = 16;
/** Nobody's failure: it is gone, or somebody else has a file there, uses it as a mount point, or has a link in its place. */
const LEFT = new Set(['ENOENT', 'ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR', 'ELOOP']);

/** Removes a directory and those in it, as far as they hold no file. @throws VirtkeepError io_failed, pool_read_only */
export async function removeEmptyDirectories(path: string, depth = 0): Promise<void> {
  try {
    if (!(await lstat(path)).isDirectory()) return;
    if (depth < MAX_DEPTH)
      for (const name of await readdir(path)) await removeEmptyDirectories(join(path, name), depth + 1);
    await rmdir(path);
    await syncDirectoryOf(path);
  } catch (error) {
    if (!LEFT.has(errnoOf(error) ?? '')) throw fromIoError(error, 'removing', path);
  }
}
