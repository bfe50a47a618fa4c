/** Directories that an operation made go when nothing is in them: whoever has put a file there keeps it. */
import { readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';
import { syncDirectoryOf } from '@virtkeep/shared/files';

/** Deeper than that nobody makes directories for images. */
const MAX_DEPTH = 16;
/** Nobody's failure: it is gone, or somebody else has a file there, or uses it as a mount point. */
const LEFT = new Set(['ENOENT', 'ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR']);

/** Removes a directory and those in it, as far as they hold no file. @throws VirtkeepError io_failed, pool_read_only */
export async function removeEmptyDirectories(path: string, depth = 0): Promise<void> {
  try {
    if (depth < MAX_DEPTH)
      for (const entry of await readdir(path, { withFileTypes: true }))
        if (entry.isDirectory()) await removeEmptyDirectories(join(path, entry.name), depth + 1);
    await rmdir(path);
    await syncDirectoryOf(path);
  } catch (error) {
    if (!LEFT.has(errnoOf(error) ?? '')) throw fromIoError(error, 'removing', path);
  }
}
