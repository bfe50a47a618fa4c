/**
 * Files in a directory where others may write: a data pool that several nodes share, or one that a user of the host owns. A pipe
 * under the name of a backup would hang whoever opens it, a link would make root read or overwrite another file, and a sparse
 * file of gigabytes would fill the memory. So what may be foreign is opened and written here.
 */
import { constants } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { open, rename, rm } from './beneath.ts';
import { errnoOf, VirtkeepError } from './errors.ts';
import { readAt } from './file-bytes.ts';
import { syncDirectoryOf } from './files.ts';

/**
 * Opening never waits for anybody (a pipe's other end, a tape), never follows a link as the last part of the path, and makes no
 * terminal the process's own.
 */
const SAFE_FLAGS = constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

/** The kinds of files that are not regular ones, in the words of people. */
type SpecialKind = 'a symbolic link' | 'a directory' | 'a pipe' | 'a socket' | 'a device' | 'a special file';

/** What tells the kind of a file: the answer of stat(2), or an entry of a directory. */
interface Typed {
  isFile(): boolean;
  isSymbolicLink(): boolean;
  isDirectory(): boolean;
  isFIFO(): boolean;
  isSocket(): boolean;
  isBlockDevice(): boolean;
  isCharacterDevice(): boolean;
}

/** What a file is that is none in the plain sense; undefined for a regular one. */
export function specialKindOf(found: Typed): SpecialKind | undefined {
  if (found.isFile()) return undefined;
  if (found.isSymbolicLink()) return 'a symbolic link';
  if (found.isDirectory()) return 'a directory';
  if (found.isFIFO()) return 'a pipe';
  if (found.isSocket()) return 'a socket';
  return found.isBlockDevice() || found.isCharacterDevice() ? 'a device' : 'a special file';
}

/** The refusal of what is no regular file. */
export const notAFile = (path: string, what: SpecialKind): VirtkeepError =>
  new VirtkeepError('not_a_file', { path, what });

/**
 * Opens a regular file that others may have put there; anything else is refused without waiting for it or reading it.
 * @param mode `update` opens an existing file for reading and writing
 * @throws VirtkeepError not_a_file; else the file system's own error
 */
export async function openForeign(path: string, mode: 'read' | 'update' = 'read'): Promise<FileHandle> {
  const access = mode === 'read' ? constants.O_RDONLY : constants.O_RDWR;
  let file: FileHandle;
  try {
    file = await open(path, access | SAFE_FLAGS);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ELOOP') throw notAFile(path, 'a symbolic link');
    if (errno === 'ENXIO') throw notAFile(path, 'a socket');
    if (errno === 'EISDIR') throw notAFile(path, 'a directory');
    throw error;
  }
  try {
    const what = specialKindOf(await file.stat());
    if (what !== undefined) throw notAFile(path, what);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

/**
 * A small file whole. Its size is looked at before anything is read, and no more is read when it grows meanwhile.
 * @throws VirtkeepError not_a_file, file_too_large; else the file system's own error
 */
export async function readForeign(path: string, maxBytes: number): Promise<Buffer> {
  const file = await openForeign(path);
  try {
    const { size } = await file.stat();
    if (size > maxBytes) throw new VirtkeepError('file_too_large', { path, bytes: size, limit: maxBytes });
    return await readAt(file, 0, size);
  } finally {
    await file.close();
  }
}

/**
 * Makes an empty file of our own under a name where something may be left, or may have been put: that goes, and is never written
 * through.
 * @throws the file system's own error; EEXIST when somebody puts something there again at that moment
 */
export async function openFresh(path: string): Promise<FileHandle> {
  await rm(path, { force: true });
  return open(path, 'wx+', 0o600);
}

/** Writes such a file, durably but for its name. Errors as above. */
export async function writeFresh(path: string, bytes: string | Buffer): Promise<void> {
  const file = await openFresh(path);
  try {
    await file.writeFile(bytes);
    await file.sync();
  } finally {
    await file.close();
  }
}

/**
 * Puts a small file in the place of what bears its name, durably: whoever looks, also after a power cut, finds one of the two whole.
 * `durable-file.ts` does so for names that nobody else can write beside.
 * @param unfinished its name until then, beside it; known to whoever is to remove what a crash leaves. Errors as above
 */
export async function replaceWhole(path: string, bytes: string | Buffer, unfinished: string): Promise<void> {
  try {
    await writeFresh(unfinished, bytes);
    await rename(unfinished, path);
  } catch (error) {
    await rm(unfinished, { force: true }).catch(() => {});
    throw error;
  }
  await syncDirectoryOf(path);
}
