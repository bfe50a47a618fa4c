/** The bytes of a backup file, or of one of its members, in pieces. */
import type { FileHandle } from 'node:fs/promises';
import { type ByteSource, chunksOf } from '@virtkeep/shared/byte-chunks';
import { fromIoError } from '@virtkeep/shared/errors';
import type {
  DownloadBackupChunk,
  DownloadBackupRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { lockFile, openArchive } from '../../archive/index.ts';
import { refuseHalfExtended } from '../archives/half-extended.ts';

interface Source extends Omit<ByteSource, 'path'> {
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
  const source = await (request.member === ''
    ? wholeFile(path, signal)
    : member(path, request.member, signal));
  const part = { offset: Number(request.offset), length: Number(request.length) };
  try {
    yield* chunksOf({ ...source, path }, part, signal);
  } finally {
    await source.close();
  }
}

async function wholeFile(path: string, signal: AbortSignal): Promise<Source> {
  const lock = await lockFile(path, 'shared');
  const { handle } = lock;
  try {
    await refuseHalfExtended(path, lock, signal);
    const { size } = await handle.stat();
    return {
      sizeBytes: size,
      read: (offset, length) => readAt(handle, path, offset, length),
      close: () => lock.release(),
    };
  } catch (error) {
    await lock.release();
    throw error;
  }
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
