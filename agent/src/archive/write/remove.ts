import { rm } from '@virtkeep/shared/beneath';
import { fromIoError } from '@virtkeep/shared/errors';
import { exists, syncDirectoryOf } from '@virtkeep/shared/files';
import { sha256PathOf } from '../format/names.ts';
import { borrowedLock, type FileLock, lockFile } from '../system/file-lock.ts';
import { removeTails } from './left-tails.ts';

/**
 * Removes an archive with its hash file and old ends that increments left, durably, when nobody reads or writes it. The archive goes first: a hash file
 * without archive is harmless, an archive that lost its hash file looks unproved. What is not there is fine; then its
 * hash file, if there is one, is another's who is about to take the name.
 * @param lock exclusive, of the archive, which stays the caller's; undefined: one is taken meanwhile
 * @throws VirtkeepError file_busy, io_failed, pool_read_only
 */
export async function removeArchive(path: string, lock?: FileLock): Promise<void> {
  if (!(await exists(path))) return;
  const own = borrowedLock(lock) ?? (await lockFile(path, 'exclusive'));
  try {
    await rm(path, { force: true });
    await rm(sha256PathOf(path), { force: true });
    // an old end without its archive would be one of whoever gets the name next
    await removeTails(path);
    await syncDirectoryOf(path);
  } catch (error) {
    throw fromIoError(error, 'removing', path);
  } finally {
    await own.release();
  }
}
