/** A file that an operation has made, open for writing, and bytes that go into it. */
import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { inPoolDirectory, open } from '@virtkeep/shared/beneath';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { readAt, writeAt } from '@virtkeep/shared/file-bytes';
import { openForeign } from '@virtkeep/shared/foreign-file';
import { MiB } from '@virtkeep/shared/units';
import { type FileMark, hasMark } from '../../images/index.ts';

const PIECE_BYTES = MiB;

export interface OpenFile {
  path: string;
  handle: FileHandle;
}

/** Somebody may have put another file under its name since it was made. @throws VirtkeepError io_failed, path_outside_pool */
export async function openMade(path: string, mark: FileMark): Promise<OpenFile> {
  const openAt = (directory: string) => openForeign(join(directory, basename(path)), 'update');
  const handle = await inPoolDirectory(path, openAt).catch(error => {
    throw fromIoError(error, 'opening', path);
  });
  if (await hasMark(handle, mark)) return { path, handle };
  await handle.close();
  throw new VirtkeepError('io_failed', { operation: 'opening', path, reason: 'another file is there' });
}

/** @throws VirtkeepError disk_full, io_failed */
export async function put({ path, handle }: OpenFile, bytes: Uint8Array, offset: number): Promise<void> {
  try {
    await writeAt(handle, bytes, offset);
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
}

/** Writes a part anew. @throws VirtkeepError disk_full, io_failed */
export async function patch(
  file: OpenFile,
  offset: number,
  lengthBytes: number,
  change: (bytes: Buffer) => Buffer,
): Promise<void> {
  const bytes = await readPiece(file, offset, lengthBytes);
  await put(file, change(bytes), offset);
}

/** Makes it durable. @throws VirtkeepError disk_full, io_failed */
export async function sync({ path, handle }: OpenFile): Promise<void> {
  try {
    await handle.sync();
  } catch (error) {
    throw fromIoError(error, 'syncing', path);
  }
}

interface CopyTarget {
  file: OpenFile;
  offset: number;
  signal: AbortSignal;
  /** Left out: to the end. */
  lengthBytes?: number;
  onBytes?: (bytes: number) => void;
}

/** Copies a part of another file. @returns its size and SHA-256. @throws VirtkeepError disk_full, io_failed, canceled */
export async function copyRange(
  from: string,
  fromOffset: number,
  { file, offset, signal, lengthBytes = Number.POSITIVE_INFINITY, onBytes = () => {} }: CopyTarget,
): Promise<{ sizeBytes: number; sha256: string }> {
  const hash = createHash('sha256');
  const handle = await open(from, 'r').catch((error: unknown) => {
    throw fromIoError(error, 'opening', from);
  });
  try {
    const source = { path: from, handle };
    let done = 0;
    while (done < lengthBytes) {
      throwIfAborted(signal);
      const piece = await readPiece(source, fromOffset + done, Math.min(PIECE_BYTES, lengthBytes - done));
      if (piece.length === 0) break;
      hash.update(piece);
      await put(file, piece, offset + done);
      done += piece.length;
      onBytes(piece.length);
    }
    return { sizeBytes: done, sha256: hash.digest('hex') };
  } finally {
    await handle.close();
  }
}

/** SHA-256 of a part, as it was read back. @throws VirtkeepError io_failed, canceled */
export async function sha256Of(
  file: OpenFile,
  { offset, sizeBytes }: { offset: number; sizeBytes: number },
  signal: AbortSignal,
): Promise<string> {
  const hash = createHash('sha256');
  for (let done = 0; done < sizeBytes; ) {
    throwIfAborted(signal);
    const piece = await readPiece(file, offset + done, Math.min(PIECE_BYTES, sizeBytes - done));
    if (piece.length === 0) {
      const reason = 'it became shorter';
      throw new VirtkeepError('io_failed', { operation: 'reading', path: file.path, reason });
    }
    hash.update(piece);
    done += piece.length;
  }
  return hash.digest('hex');
}

async function readPiece({ path, handle }: OpenFile, offset: number, lengthBytes: number): Promise<Buffer> {
  try {
    return await readAt(handle, offset, lengthBytes);
  } catch (error) {
    throw fromIoError(error, 'reading', path);
  }
}
