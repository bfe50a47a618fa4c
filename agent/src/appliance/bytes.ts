import type { FileHandle } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { open, rm } from '@virtkeep/shared/beneath';
import { fromIoError } from '@virtkeep/shared/errors';
import { readAt, writeAt } from '@virtkeep/shared/file-bytes';
import { MiB } from '@virtkeep/shared/units';
import { Fault } from './fault.ts';

const PIECE_BYTES = MiB;
const ZEROS = Buffer.alloc(PIECE_BYTES);

/** The bytes of a range, piece by piece. @throws Fault when the file ends before; VirtkeepError canceled */
export async function* rangeOf(
  file: FileHandle,
  offset: number,
  lengthBytes: number,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  for (let done = 0; done < lengthBytes; ) {
    throwIfAborted(signal);
    const piece = await readAt(file, offset + done, Math.min(PIECE_BYTES, lengthBytes - done));
    if (piece.length === 0) throw new Fault('it became shorter while it was read');
    done += piece.length;
    yield piece;
  }
}

/** All of a few bytes. @throws Fault when there are more than `mostBytes` */
export async function collected(pieces: AsyncIterable<Buffer>, mostBytes: number): Promise<Buffer> {
  const kept: Buffer[] = [];
  for await (const piece of limited(pieces, mostBytes)) kept.push(piece);
  return Buffer.concat(kept);
}

/** The same bytes, as long as there are not more. @throws Fault */
export async function* limited(pieces: AsyncIterable<Buffer>, mostBytes: number): AsyncGenerator<Buffer> {
  let bytes = 0;
  for await (const piece of pieces) {
    bytes += piece.length;
    if (bytes > mostBytes)
      throw new Fault(`it holds more than the ${mostBytes} bytes that are unpacked of it`);
    yield piece;
  }
}

export interface WriteOptions {
  signal: AbortSignal;
  /** Called with the number of each piece's bytes, as they are taken. */
  onBytes?: (bytes: number) => void;
}

/** A file that the caller has made, which is empty, and that stays the caller's whatever comes. */
export interface MadeFile {
  /** As people know it. */
  path: string;
  file: FileHandle;
}

/**
 * Writes a new file, with holes where there are zeros. When this has thrown, there is none but one that the caller made.
 * @returns its size in bytes
 * @throws VirtkeepError disk_full, io_failed also when something bears the name already, canceled; else as the pieces do
 */
export async function writeNew(
  target: string | MadeFile,
  pieces: AsyncIterable<Buffer>,
  options: WriteOptions,
): Promise<number> {
  if (typeof target !== 'string') return write(target, pieces, options);
  let file: FileHandle;
  try {
    file = await open(target, 'wx', 0o600);
  } catch (error) {
    throw fromIoError(error, 'making', target);
  }
  try {
    const bytes = await write({ path: target, file }, pieces, options);
    await file.close();
    return bytes;
  } catch (error) {
    // a program that is given the name must not find half of it, and who made it is gone with this error
    await file.close().catch(() => {});
    await rm(target, { force: true }).catch(() => {});
    throw error;
  }
}

async function write(
  { path, file }: MadeFile,
  pieces: AsyncIterable<Buffer>,
  { signal, onBytes }: WriteOptions,
): Promise<number> {
  let at = 0;
  for await (const piece of pieces) {
    throwIfAborted(signal);
    if (!isZero(piece))
      await writeAt(file, piece, at).catch(error => {
        throw fromIoError(error, 'writing', path);
      });
    at += piece.length;
    onBytes?.(piece.length);
  }
  await file.truncate(at);
  return at;
}

const isZero = (piece: Buffer): boolean =>
  piece.length <= ZEROS.length && piece.equals(ZEROS.subarray(0, piece.length));
