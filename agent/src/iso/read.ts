/** The bytes of an ISO image, in pieces. */
import type { FileHandle } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { inPoolDirectory } from '@virtkeep/shared/beneath';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { openForeign } from '@virtkeep/shared/foreign-file';
import { MiB } from '@virtkeep/shared/units';

/**
 * The next piece is read only when it is wanted; the first one has the whole size, also when it has no data. The file is not locked: QEMU
 * would not start a VM with a medium that another has locked.
 * @throws VirtkeepError invalid_field (offset beyond the end), not_a_file, path_outside_pool, io_failed, canceled
 */
export async function* isoChunks(
  path: string,
  { offset, length }: { offset: number; length: number },
  signal: AbortSignal,
): AsyncGenerator<{ size: bigint; data: Buffer }> {
  const open = (directory: string) => openForeign(join(directory, basename(path)));
  const file = await inPoolDirectory(path, open).catch(error => {
    throw fromIoError(error, 'opening', path);
  });
  try {
    const { size } = await file.stat();
    if (offset > size)
      throw new VirtkeepError('invalid_field', { field: 'offset', reason: `is beyond the ${size} bytes` });
    const end = length === 0 ? size : Math.min(size, offset + length);
    for (let at = offset, first = true; at < end || first; first = false) {
      throwIfAborted(signal);
      const data = await readAt(file, path, at, Math.min(MiB, end - at));
      at += data.length;
      yield { size: first ? BigInt(size) : 0n, data };
    }
  } finally {
    await file.close();
  }
}

async function readAt(file: FileHandle, path: string, offset: number, lengthBytes: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(lengthBytes);
  if (lengthBytes === 0) return bytes;
  const { bytesRead } = await file.read(bytes, 0, lengthBytes, offset).catch(error => {
    throw fromIoError(error, 'reading', path);
  });
  if (bytesRead === 0)
    throw new VirtkeepError('io_failed', { operation: 'reading', path, reason: 'it became shorter' });
  return bytes.subarray(0, bytesRead);
}
