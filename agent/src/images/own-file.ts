/**
 * A new file that is provably ours. A name alone is no proof: two operations, perhaps of two nodes, may both look, find
 * nothing, and declare the same name. So the file is created under a random name that the journal has before. A hard link,
 * which never replaces another file, gives it its real name. From then on its inode and the time of its birth identify it,
 * and what is written goes into that file.
 */
import type { FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { inPoolDirectory, link, lstatBig, open } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { removePath } from '@virtkeep/shared/files';
import { newId } from '@virtkeep/shared/ids';

/** Its effect in the journal: with `claim` the file is being created, with `made` it is there. */
export interface OwnFile {
  type: 'file';
  path: string;
  /** The random name under which it is made. */
  claim?: string;
  made?: FileMark;
  /**
   * An image may stand on images of the operation that were created before it with the same text here, and on no others. Absent
   * where none stands on another, and in a journal of an earlier version.
   */
  stack?: string;
}

/** Tells a file from another one that has its name. */
export interface FileMark {
  inode: string;
  /** Nanoseconds since 1970; "0" where the file system keeps no such time. */
  bornNs: string;
}

/** File systems without hard links (vfat, some CIFS servers). */
const NO_LINKS = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK']);

/** How an own file is made. */
export interface MakeOptions {
  /** Tells on which other files of the operation it is going to stand. */
  stack?: string | undefined;
  /** Its name comes from outside: its directory must lie in the pool that the path names. */
  inPool?: boolean;
}

/**
 * Makes an empty file of mode 0600, durably declared before it appears.
 * @param declare writes the effect to the journal
 * @returns what `declare` answered for the file that is there, and what tells that file from others
 * @throws VirtkeepError file_exists, io_failed, disk_full, path_outside_pool; then there is nothing of ours
 */
export async function makeOwnFile<T extends { keep(): void }>(
  path: string,
  declare: (effect: OwnFile) => T,
  { stack, inPool = false }: MakeOptions = {},
): Promise<{ handle: T; mark: FileMark }> {
  const name = `.virtkeep-${newId()}.claim`;
  const claiming = declare({ type: 'file', path, claim: join(dirname(path), name) });
  const make = async (directory: string) => {
    const claim = join(directory, name);
    try {
      const mark = await claimName(claim, join(directory, basename(path)));
      const handle = declare({ type: 'file', path, made: mark, ...(stack !== undefined && { stack }) });
      await removePath(claim);
      return { handle, mark };
    } catch (error) {
      if (errnoOf(error) === 'EEXIST') await removePath(claim);
      throw error;
    }
  };
  try {
    const result = await (inPool ? inPoolDirectory(path, make) : make(dirname(path)));
    claiming.keep();
    return result;
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw fromIoError(error, 'making', path);
    claiming.keep();
    throw new VirtkeepError('file_exists', { path });
  }
}

async function claimName(claim: string, path: string): Promise<FileMark> {
  const mark = await makeEmpty(claim);
  try {
    await link(claim, path);
    return mark;
  } catch (error) {
    if (!NO_LINKS.has(errnoOf(error) ?? '')) throw error;
  }
  return makeEmpty(path);
}

async function makeEmpty(path: string): Promise<FileMark> {
  const file = await open(path, 'wx', 0o600);
  try {
    return markOf(await file.stat({ bigint: true }));
  } finally {
    await file.close();
  }
}

const markOf = ({ ino, birthtimeNs }: { ino: bigint; birthtimeNs: bigint }): FileMark => ({
  inode: String(ino),
  bornNs: String(birthtimeNs),
});

const isSame = (a: FileMark, b: FileMark): boolean => a.inode === b.inode && a.bornNs === b.bornNs;

/**
 * Whether the file of that name is the one that the effect is about. An effect without a mark (of an earlier version) cannot
 * prove it: then the name decides. Removes what an interrupted creation has left.
 * @throws VirtkeepError io_failed
 */
export async function isOwnFile({ path, claim, made: mark }: OwnFile): Promise<boolean> {
  const found = await fileMarkAt(path);
  if (claim !== undefined) {
    const claimed = await fileMarkAt(claim);
    const isOurs = found !== null && claimed !== null && isSame(found, claimed);
    // the name first: without the claim nobody could tell any more
    if (isOurs) await removePath(path);
    await removePath(claim);
    return false;
  }
  if (found === null) return false;
  return mark === undefined || isSame(found, mark);
}

/** Whether an open file is the one that the mark is of. @throws the file system's own error */
export const hasMark = async (file: FileHandle, mark: FileMark): Promise<boolean> =>
  isSame(markOf(await file.stat({ bigint: true })), mark);

/** What tells the file of that name from another one; null when there is none. @throws VirtkeepError io_failed */
export async function fileMarkAt(path: string): Promise<FileMark | null> {
  try {
    return markOf(await lstatBig(path));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null;
    throw fromIoError(error, 'looking at', path);
  }
}
