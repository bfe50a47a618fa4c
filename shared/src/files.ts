import { dirname } from 'node:path';
import { lstat, open, openDirectory, rm } from './beneath.ts';
import { errnoOf, fromIoError } from './errors.ts';

/**
 * Makes the names in a file's directory durable: a new, renamed or removed file survives a power cut only after this.
 * @throws the file system's own error, ENOENT when the directory is gone too
 */
export async function syncDirectoryOf(path: string): Promise<void> {
  await syncDirectory(dirname(path));
}

/** As `syncDirectoryOf`, of the directory itself. @throws the file system's own error */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await openDirectory(path);
  await directory.sync().finally(() => directory.close());
}

/**
 * Makes what anybody wrote to a file, and its name, survive a power cut.
 * @throws VirtkeepError io_failed
 */
export async function syncFile(path: string): Promise<void> {
  try {
    const file = await open(path, 'r');
    await file.sync().finally(() => file.close());
    await syncDirectoryOf(path);
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
}

/**
 * Removes a file, durably; with `recursive` a directory too. What is not there, or in no directory, is fine.
 * @throws VirtkeepError io_failed, pool_read_only
 */
export async function removePath(path: string, options: { recursive?: boolean } = {}): Promise<void> {
  try {
    await rm(path, { force: true, ...options });
    await syncDirectoryOf(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw fromIoError(error, 'removing', path);
  }
}

/**
 * Whether something has this name, a dangling link included.
 * @throws VirtkeepError io_failed when that cannot be told: "not there" must be sure before anything is made or removed
 */
export async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw fromIoError(error, 'looking at', path);
  }
}
