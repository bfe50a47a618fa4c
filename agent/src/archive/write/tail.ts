import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { lstat, rm } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { writeAt } from '@virtkeep/shared/file-bytes';
import { exists, syncDirectoryOf } from '@virtkeep/shared/files';
import { openForeign, readForeign, replaceWhole } from '@virtkeep/shared/foreign-file';
import { z } from 'zod';
import { MAX_SIDECAR_BYTES, MAX_TAIL_FILE_BYTES } from '../format/bounds.ts';
import { sha256PathOf } from '../format/names.ts';
import { borrowedLock, type FileLock, lockFile } from '../system/file-lock.ts';

/**
 * The tail file: all that is needed to make an archive again what it was before it was extended. One line of JSON,
 * then the saved bytes. It appears under its name only when it is whole and durable; until then nothing of the
 * archive is overwritten.
 */
const headerSchema = z.object({
  version: z.literal(1),
  /** The archive's size. */
  sizeBytes: z.int().nonnegative(),
  /** Where in the archive the saved bytes stood; they reach to its end. */
  offset: z.int().nonnegative(),
  tailBytes: z.int().nonnegative(),
  /** Size of the hash file, null when there was none. */
  sidecarBytes: z.int().nonnegative().nullable(),
  /** Of everything behind this line. */
  sha256: z.string(),
  /** Of the bytes before `offset`, a few of them, by which the archive is known again; absent in older ones. */
  before: z.string().optional(),
  /** Whether the extension is whole and on the disk, all of it; absent in older ones. */
  durable: z.boolean().optional(),
});
/** Longest first line. */
const MAX_HEADER_BYTES = 1024;

/** Bytes before the saved ones by which an archive is known again. */
const BEFORE_BYTES = 4096;

export interface SavedTail {
  sizeBytes: number;
  offset: number;
  tail: Buffer;
  sidecar: Buffer | null;
  before: string | undefined;
  durable: boolean | undefined;
}

/** Names beside the archive that an extension uses for a while; all of them go with the tail file. */
export const tailNames = {
  unfinished: (tailPath: string): string => `${tailPath}.new`,
  /** A raw disk under conversion. */
  spare: (tailPath: string): string => `${tailPath}.qcow2`,
  /** The new hash file. */
  sidecar: (tailPath: string): string => `${tailPath}.sha256`,
};

/**
 * Saves the bytes of the archive from `offset` to its end, and its hash file.
 * @throws VirtkeepError io_failed, disk_full, archive_damaged when the archive is not `sizeBytes` long any more
 */
export async function saveTail(
  archive: FileHandle,
  path: string,
  { offset, sizeBytes }: { offset: number; sizeBytes: number },
  tailPath: string,
): Promise<void> {
  try {
    if ((await archive.stat()).size !== sizeBytes)
      throw new VirtkeepError('archive_damaged', {
        path,
        reason: 'it was changed by somebody else meanwhile',
      });
    const tail = Buffer.alloc(sizeBytes - offset);
    await archive.read(tail, 0, tail.length, offset);
    const sidecar = await readForeign(sha256PathOf(path), MAX_SIDECAR_BYTES).catch(absentAs(null));
    const before = await hashBefore(archive, offset);
    await writeTail(tailPath, { sizeBytes, offset, tail, sidecar, before, durable: false });
  } catch (error) {
    throw fromIoError(error, 'writing', tailPath);
  }
}

/**
 * Notes in the tail file that the extension is whole and durable. Whoever finds the file without this puts the old end
 * back: an archive that opens whole may still lack data that never left the memory of the node that died.
 * @throws VirtkeepError io_failed, disk_full, archive_damaged
 */
export async function markDurable(tailPath: string): Promise<void> {
  try {
    const bytes = await readForeign(tailPath, MAX_TAIL_FILE_BYTES);
    await writeTail(tailPath, { ...decode(bytes, tailPath), durable: true });
  } catch (error) {
    throw fromIoError(error, 'writing', tailPath);
  }
}

async function writeTail(tailPath: string, saved: SavedTail): Promise<void> {
  await replaceWhole(tailPath, encode(saved), tailNames.unfinished(tailPath));
}

/**
 * Puts back the end an archive had before it was extended, as `tailPath` keeps it, with its hash file, and removes
 * that file: the archive is byte for byte what it was. Idempotent; without the tail file nothing was overwritten yet.
 * @param lock exclusive, of the archive, which stays the caller's; undefined: one is taken meanwhile
 * @throws VirtkeepError io_failed, disk_full, file_busy (then the tail file stays, and it is to be tried again),
 *   archive_damaged when tail file or archive are not what they must be
 */
export async function undoAppend(path: string, tailPath: string, lock?: FileLock): Promise<void> {
  try {
    if (await exists(tailPath)) {
      // Somebody removed the archive meanwhile: there is nothing to put back to.
      const own = (await exists(path)) ? (borrowedLock(lock) ?? (await lockFile(path, 'exclusive'))) : null;
      try {
        await putBackFrom(tailPath, path);
      } finally {
        await own?.release();
      }
    }
    // A pool that is not mounted has neither tail file nor directory: that is an error, and not "nothing to do".
    await lstat(dirname(tailPath));
    await removeTail(tailPath);
  } catch (error) {
    throw fromIoError(error, 'putting back the end of', path);
  }
}

/** Durably; harmless when repeated. */
export async function removeTail(tailPath: string): Promise<void> {
  const { unfinished, spare, sidecar } = tailNames;
  for (const name of [unfinished(tailPath), spare(tailPath), sidecar(tailPath), tailPath])
    await rm(name, { force: true });
  await syncDirectoryOf(tailPath);
}

/** Null when there is none. @throws VirtkeepError archive_damaged */
export async function readTail(tailPath: string): Promise<SavedTail | null> {
  const bytes = await readForeign(tailPath, MAX_TAIL_FILE_BYTES).catch(absentAs(null));
  return bytes === null ? null : decode(bytes, tailPath);
}

/** Read under the lock: who had it before may have put all back, and begun anew. */
async function putBackFrom(tailPath: string, path: string): Promise<void> {
  const saved = await readTail(tailPath);
  if (saved === null) return;
  if (await putBack(path, saved)) await putSidecarBack(path, tailPath, saved.sidecar);
}

async function hashBefore(archive: FileHandle, offset: number): Promise<string> {
  const bytes = Buffer.alloc(Math.min(BEFORE_BYTES, offset));
  await archive.read(bytes, 0, bytes.length, offset - bytes.length);
  return sha256(bytes);
}

const absentAs =
  <T>(value: T) =>
  (error: unknown): T => {
    if (errnoOf(error) === 'ENOENT') return value;
    throw error;
  };

function encode({ sizeBytes, offset, tail, sidecar, before, durable }: SavedTail): Buffer {
  const body = Buffer.concat([tail, sidecar ?? Buffer.alloc(0)]);
  const header: z.infer<typeof headerSchema> = {
    version: 1,
    sizeBytes,
    offset,
    tailBytes: tail.length,
    sidecarBytes: sidecar === null ? null : sidecar.length,
    sha256: sha256(body),
    ...(before !== undefined && { before }),
    ...(durable !== undefined && { durable }),
  };
  return Buffer.concat([Buffer.from(`${JSON.stringify(header)}\n`), body]);
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

function decode(bytes: Buffer, tailPath: string): SavedTail {
  const lineEnd = bytes.subarray(0, MAX_HEADER_BYTES).indexOf('\n');
  try {
    const header = headerSchema.parse(JSON.parse(bytes.toString('utf8', 0, Math.max(0, lineEnd))));
    const body = bytes.subarray(lineEnd + 1);
    const { sizeBytes, offset, tailBytes, sidecarBytes, before, durable } = header;
    const whole = body.length === tailBytes + (sidecarBytes ?? 0) && offset + tailBytes === sizeBytes;
    if (!whole || sha256(body) !== header.sha256) throw new Error('its bytes are not those that were saved');
    const sidecar = sidecarBytes === null ? null : body.subarray(tailBytes);
    return { sizeBytes, offset, tail: body.subarray(0, tailBytes), sidecar, before, durable };
  } catch (error) {
    const reason = `the saved end of an archive cannot be read (${(error as Error).message.slice(0, 200)})`;
    throw new VirtkeepError('archive_damaged', { path: tailPath, reason });
  }
}

/** False when the archive is gone, or another has its name: there is nothing to put back to. */
async function putBack(path: string, { sizeBytes, offset, tail, before }: SavedTail): Promise<boolean> {
  const file = await openForeign(path, 'update').catch(absentAs(null));
  if (file === null) return false;
  try {
    if (before !== undefined && before !== (await hashBefore(file, offset))) return false;
    if ((await file.stat()).size < offset)
      throw new VirtkeepError('archive_damaged', { path, reason: 'it is shorter than before its extension' });
    try {
      await writeAt(file, tail, offset);
    } catch (error) {
      // Overwriting needs room where blocks are shared (btrfs, XFS after a reflink): what was added makes it.
      if (errnoOf(error) !== 'ENOSPC') throw error;
      await file.truncate(offset);
      await writeAt(file, tail, offset);
    }
    await file.truncate(sizeBytes);
    await file.sync();
    return true;
  } finally {
    await file.close();
  }
}

async function putSidecarBack(path: string, tailPath: string, sidecar: Buffer | null): Promise<void> {
  const name = sha256PathOf(path);
  const now = await readForeign(name, MAX_SIDECAR_BYTES).catch(absentAs(null));
  if (sidecar === null) {
    if (now !== null) await rm(name, { force: true });
    return;
  }
  if (now?.equals(sidecar)) return;
  await replaceWhole(name, sidecar, tailNames.sidecar(tailPath));
}
