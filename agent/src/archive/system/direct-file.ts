import { constants } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { open, rm } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';

/**
 * Opens a file for direct output, buffered where the file system refuses that (EINVAL). A new one must not exist.
 * @throws VirtkeepError file_exists, disk_full, io_failed
 */
export async function openDirect(
  path: string,
  { existing = false, mode = 0o600 }: { existing?: boolean; mode?: number } = {},
): Promise<FileHandle> {
  const flags =
    constants.O_RDWR | constants.O_NOFOLLOW | (existing ? 0 : constants.O_CREAT | constants.O_EXCL);
  try {
    return await open(path, flags | constants.O_DIRECT, mode);
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') throw new VirtkeepError('file_exists', { path });
    if (errnoOf(error) !== 'EINVAL') throw fromIoError(error, 'creating', path);
  }
  try {
    // The refusal may have left the new, empty file behind.
    if (!existing) await rm(path, { force: true });
    return await open(path, flags, mode);
  } catch (error) {
    throw fromIoError(error, 'creating', path);
  }
}
