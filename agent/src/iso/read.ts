/** The bytes of an ISO image, in pieces. */
import { basename, join } from 'node:path';
import { inPoolDirectory } from '@virtkeep/shared/beneath';
import { chunksOf } from '@virtkeep/shared/byte-chunks';
import { fromIoError } from '@virtkeep/shared/errors';
import { openForeign } from '@virtkeep/shared/foreign-file';

/**
 * The next piece is read only when it is wanted; the first one has the whole size, also when it has no data. The file is not locked: QEMU
 * would not start a VM with a medium that another has locked.
 * @throws VirtkeepError invalid_field (offset beyond the end), not_a_file, path_outside_pool, io_failed, canceled
 */
export async function* isoChunks(
  path: string,
  part: { offset: number; length: number },
  signal: AbortSignal,
): AsyncGenerator<{ size: bigint; data: Buffer }> {
  const open = (directory: string) => openForeign(join(directory, basename(path)));
  const file = await inPoolDirectory(path, open).catch(error => {
    throw fromIoError(error, 'opening', path);
  });
  try {
    const { size: sizeBytes } = await file.stat();
    const read = async (at: number, lengthBytes: number) => {
      const { bytesRead, buffer } = await file
        .read(Buffer.allocUnsafe(lengthBytes), 0, lengthBytes, at)
        .catch(error => {
          throw fromIoError(error, 'reading', path);
        });
      return buffer.subarray(0, bytesRead);
    };
    yield* chunksOf({ path, sizeBytes, read }, part, signal);
  } finally {
    await file.close();
  }
}
