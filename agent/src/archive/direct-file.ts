import { constants } from 'node:fs';
import { type FileHandle, open, rm } from 'node:fs/promises';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';

/** Opens a new file for direct output, or buffered where the file system refuses that (EINVAL). */
export async function openDirect(path: string, mode = 0o600): Promise<FileHandle> {
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL;
  try {
    return await open(path, flags | constants.O_DIRECT, mode);
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') throw new VirtkeepError('file_exists', { path });
    if (errnoOf(error) !== 'EINVAL') throw fromIoError(error, 'creating', path);
  }
  // A refused O_DIRECT may leave the empty file behind.
  await rm(path, { force: true });
  try {
    return await open(path, flags, mode);
  } catch (error) {
    throw fromIoError(error, 'creating', path);
  }
}
