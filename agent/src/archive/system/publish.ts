import { dirname } from 'node:path';
import { link, lstat, rename, rm } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { syncDirectoryOf } from '@virtkeep/shared/files';

/** File systems without hard links answer one of these. */
const NO_LINKS = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'];

/** Whether a link failed because the file system has none. */
export const lacksLinks = (error: unknown): boolean => NO_LINKS.includes(errnoOf(error) ?? '');

/**
 * Gives a finished file its name and makes that durable. A hard link fails when the name is taken, which no rename
 * of Node does; a crash between the link and the removal leaves only a second name of the whole file.
 * @throws VirtkeepError file_exists, io_failed
 */
export async function publishNew(partialPath: string, path: string): Promise<void> {
  try {
    await link(partialPath, path);
    await rm(partialPath);
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') throw new VirtkeepError('file_exists', { path });
    if (!lacksLinks(error)) throw fromIoError(error, 'publishing', path);
    await renameNew(partialPath, path);
  }
  await keepName(path);
}

/** Second best, for file systems without hard links: look, then rename. */
async function renameNew(partialPath: string, path: string): Promise<void> {
  const taken = await lstat(path).then(
    () => true,
    () => false,
  );
  if (taken) throw new VirtkeepError('file_exists', { path });
  try {
    await rename(partialPath, path);
  } catch (error) {
    throw fromIoError(error, 'publishing', path);
  }
}

/** Makes a new name durable. @throws VirtkeepError io_failed */
export async function keepName(path: string): Promise<void> {
  try {
    await syncDirectoryOf(path);
  } catch (error) {
    throw fromIoError(error, 'syncing', dirname(path));
  }
}
