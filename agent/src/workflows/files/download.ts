/** The bytes of a backup file, or of one of its members, in pieces. */
import type { FileHandle } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import type {
  DownloadBackupChunk,
  DownloadBackupRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { lockFile, openArchive } from '../../archive/index.ts';

/** Bytes of a chunk; also what the proto promises at most. */
const CHUNK_BYTES = 1024 * 1024;

/** Something with a size that can be read at any place. */
interface Source {
  sizeBytes: number;
  read(offset: number, lengthBytes: number): Promise<Buffer>;
  close(): Promise<void>;
}

/**
 * Yields the chunks that a download asks for; the next one is read only when it is wanted. The first one has the whole
 * size, also when it has no data. The caller holds the file.
 * @throws VirtkeepError invalid_field (offset beyond the end), member_not_found, archive_damaged, archive_unsupported,
 *   file_busy, io_failed, canceled
 */
export async function* downloadChunks(
  path: string,
  request: DownloadBackupRequest,
  signal: AbortSignal,
): AsyncGenerator<DownloadBackupChunk> {
  const source = await (request.member === '' ? wholeFile(path) : member(path, request.member, signal));
  try {
    const { start, end } = rangeOf(request, source.sizeBytes);
    for (let at = start, first = true; at < end || first; first = false) {
      throwIfAborted(signal);
      const data = await source.read(at, Math.min(CHUNK_BYTES, end - at));
      if (data.length === 0 && at < end)
        throw new VirtkeepError('io_failed', { operation: 'reading', path, reason: 'it became shorter' });
      at += data.length;
      yield { size: first ? BigInt(source.sizeBytes) : 0n, data };
    }
  } finally {
    await source.close();
  }
}

/** @throws VirtkeepError invalid_field */
function rangeOf(
  { offset, length }: DownloadBackupRequest,
  sizeBytes: number,
): { start: number; end: number } {
  const start = Number(offset);
  if (start > sizeBytes)
    throw new VirtkeepError('invalid_field', { field: 'offset', reason: `is beyond the ${sizeBytes} bytes` });
  const end = length === 0n ? sizeBytes : Math.min(sizeBytes, start + Number(length));
  return { start, end };
}

async function wholeFile(path: string): Promise<Source> {
  const lock = await lockFile(path, 'shared');
  const { handle } = lock;
  const { size } = await handle.stat();
  return {
    sizeBytes: size,
    read: (offset, length) => readAt(handle, path, offset, length),
    close: () => lock.release(),
  };
}

async function readAt(
  handle: FileHandle,
  path: string,
  offset: number,
  lengthBytes: number,
): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(lengthBytes);
  try {
    const { bytesRead } = await handle.read(bytes, 0, lengthBytes, offset);
    return bytes.subarray(0, bytesRead);
  } catch (error) {
    throw fromIoError(error, 'reading', path);
  }
}

/** A damaged archive gives what can be read of it. */
async function member(path: string, name: string, signal: AbortSignal): Promise<Source> {
  const archive = await openArchive(path, signal, { salvage: true });
  try {
    const range = await archive.memberRange(name);
    return { ...range, close: () => archive.close() };
  } catch (error) {
    await archive.close();
    throw error;
  }
}
