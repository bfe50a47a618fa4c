import { VirtkeepError } from '@virtkeep/shared/errors';
import { type FileLock, hasTailToPutBack } from '../../archive/index.ts';

/**
 * An increment that its node left half on the disk must not be copied as whole: what tells of it lies beside the archive.
 * @param lock of the archive
 * @throws VirtkeepError archive_damaged, archive_unsupported, io_failed, canceled
 */
export async function refuseHalfExtended(path: string, lock: FileLock, signal: AbortSignal): Promise<void> {
  if (!(await hasTailToPutBack(path, lock, signal))) return;
  const reason =
    'an increment of it was cut off, of which a copy would not tell; extend it once, or convert it in its place';
  throw new VirtkeepError('archive_damaged', { path, reason });
}
