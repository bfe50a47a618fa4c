/**
 * What a file holds, in one number: the same for every copy of it, whatever its dates, place and holes. A template's disk
 * is told by it from one that was changed.
 *
 * It is SHA-256 over (offset as u64 big-endian, SHA-256) of each 4 MiB block that is not all zeros, and at the end over
 * the file's size. Blocks are hashed apart so that this takes place in libuv's threads and not in the event loop.
 */
import { createHash, webcrypto } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { fillFrom } from '@virtkeep/shared/file-bytes';
import { MiB } from '@virtkeep/shared/units';

const BLOCK_BYTES = 4 * MiB;
const ZEROS = Buffer.alloc(BLOCK_BYTES);

/** Where known fingerprints are kept; values are plain JSON. */
export interface FingerprintStore {
  get(key: string): unknown;
  set(key: string, value: unknown): void;
}

export interface FingerprintOptions {
  signal: AbortSignal;
  /** Bytes looked at so far. Not called when the fingerprint is known. */
  onProgress?: (bytesDone: number) => void;
  /** Undefined: nothing is remembered. */
  store?: FingerprintStore | undefined;
}

/**
 * The fingerprint of a file, `sha256:` and 64 hex digits. A known one is taken while the file is the same by inode, size
 * and times; the time of the last change of its inode cannot be set back by a user.
 * @throws VirtkeepError io_failed, also when the file changes meanwhile; canceled
 */
export async function fingerprintOf(path: string, options: FingerprintOptions): Promise<string> {
  const { store } = options;
  const file = await open(path, 'r').catch(error => {
    throw fromIoError(error, 'reading', path);
  });
  try {
    const mark = await markOf(file);
    const stored = mark === null ? undefined : storedFingerprint(store, path, mark);
    if (stored !== undefined) return stored;
    const fingerprint = await hashWhole(file, path, options);
    if ((await markOf(file)) !== mark)
      throw new VirtkeepError('io_failed', {
        operation: 'reading',
        path,
        reason: 'it was changed meanwhile',
      });
    if (mark !== null) store?.set(keyOf(path), { mark, fingerprint });
    return fingerprint;
  } catch (error) {
    throw fromIoError(error, 'reading', path);
  } finally {
    await file.close();
  }
}

const keyOf = (path: string) => `disks.fingerprint.${path}`;

function storedFingerprint(
  store: FingerprintStore | undefined,
  path: string,
  mark: string,
): string | undefined {
  const stored = store?.get(keyOf(path)) as { mark?: unknown; fingerprint?: unknown } | null | undefined;
  return stored?.mark === mark && typeof stored.fingerprint === 'string' ? stored.fingerprint : undefined;
}

/** Null for a device: its times tell nothing. */
async function markOf(file: FileHandle): Promise<string | null> {
  const found = await file.stat({ bigint: true });
  if (!found.isFile()) return null;
  return `${found.dev}:${found.ino}:${found.size}:${found.mtimeNs}:${found.ctimeNs}`;
}

/** One block is read while the one before is hashed. */
async function hashWhole(
  file: FileHandle,
  path: string,
  { signal, onProgress }: FingerprintOptions,
): Promise<string> {
  const whole = createHash('sha256');
  const buffers = [Buffer.allocUnsafe(BLOCK_BYTES), Buffer.allocUnsafe(BLOCK_BYTES)];
  let hashed: Promise<void> = Promise.resolve();
  let offset = 0;
  for (let index = 0; ; index += 1) {
    throwIfAborted(signal);
    const buffer = buffers[index % 2]!;
    const length = await fill(file, buffer, offset, path);
    await hashed;
    if (length > 0 && !buffer.subarray(0, length).equals(ZEROS.subarray(0, length)))
      hashed = addBlock(whole, offset, buffer.subarray(0, length));
    offset += length;
    onProgress?.(offset);
    if (length < BLOCK_BYTES) break;
  }
  await hashed;
  return `sha256:${whole.update(number(offset)).digest('hex')}`;
}

async function addBlock(
  whole: ReturnType<typeof createHash>,
  offset: number,
  bytes: Uint8Array<ArrayBuffer>,
): Promise<void> {
  const own = await webcrypto.subtle.digest('SHA-256', bytes);
  whole.update(number(offset)).update(Buffer.from(own));
}

function number(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}

/** @returns bytes read, fewer than the buffer has only at the end of the file */
const fill = (file: FileHandle, buffer: Buffer, offset: number, path: string): Promise<number> =>
  fillFrom(file, buffer, offset).catch(error => {
    throw fromIoError(error, 'reading', path);
  });
