/**
 * All nodes agree on the file itself who reads an archive and who writes it: any number of readers (a restore, an instant
 * restore to the end of its pull, a verification, a download), or one writer (an increment, a conversion, a removal). A lock
 * of the open file description ends when its holder dies, for whatever reason, and NFSv4 and CIFS carry it to the other nodes.
 * On a file system without locks there is only the controller's record of readers and writers.
 */
import type { FileHandle } from 'node:fs/promises';
import { basename } from 'node:path';
import { lstat } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { openForeign } from '@virtkeep/shared/foreign-file';
import { isLocked, type LockRange, setLock } from './syscalls.ts';

/** Far behind all data: on CIFS nobody may read or write what is locked. */
const OURS: LockRange = { start: 1n << 62n, lengthBytes: 1n };
/** Where QEMU locks the images it has open, archives of an instant restore among them (its block/file-posix.c). */
const OF_QEMU: LockRange = { start: 100n, lengthBytes: 200n };
/** At most so many times another file may take the name between the opening and the locking. */
const MAX_OPENINGS = 5;

export type LockMode = 'shared' | 'exclusive';

/** A lock that is held until `release`. */
export interface FileLock {
  readonly path: string;
  readonly mode: LockMode;
  /** Of the locked file; open for writing too when the lock is exclusive, and the file may be written. */
  readonly handle: FileHandle;
  /** False on a file system without locks, and for a file that may not be written: others are not all kept out. */
  readonly excludes: boolean;
  /** @throws VirtkeepError file_busy when the lock was lost meanwhile (its server was away too long), and another has it */
  confirm(): Promise<void>;
  /** Harmless when repeated. */
  release(): Promise<void>;
}

type TellMissing = (path: string) => void;
let tellMissing: TellMissing = () => {};
const reportedDevices = new Set<number>();

/** @param tell is called once for each file system that has no locks, with the path of a file on it. */
export function whenLocksAreMissing(tell: TellMissing): void {
  tellMissing = tell;
  reportedDevices.clear();
}

/**
 * Locks a file that exists, and makes sure that the path still names it then.
 * @throws VirtkeepError file_busy, not_a_file, io_failed (also when there is no such file), pool_read_only
 */
export async function lockFile(path: string, mode: LockMode): Promise<FileLock> {
  for (let opening = 1; opening <= MAX_OPENINGS; opening += 1) {
    const { handle, mayWrite } = await opened(path, mode);
    try {
      const result = mayWrite ? await taken(handle, path, mode) : await takenUnwritable(handle);
      if (result === 'held') throw fileBusy(path);
      if (await isStillNamed(handle, path)) return new HeldLock(path, mode, handle, result === 'locked');
    } catch (error) {
      await handle.close();
      throw error;
    }
    await handle.close();
  }
  throw fileBusy(path);
}

/** The same lock for a caller who must not release it. */
export function borrowedLock(lock: FileLock | undefined): FileLock | undefined {
  if (lock === undefined) return undefined;
  const { path, mode, handle, excludes } = lock;
  return { path, mode, handle, excludes, confirm: () => lock.confirm(), release: async () => {} };
}

/** Whether somebody writes the file now, for a caller without a lock; false when that cannot be found out. */
export async function isBeingWritten(handle: FileHandle): Promise<boolean> {
  return isLocked(handle.fd, 'shared', OURS);
}

/** The refusal of a locked file: the file system does not say who holds it. */
export function fileBusy(path: string): VirtkeepError {
  const params = {
    file: basename(path),
    operation: 'of another node',
    kind: 'it holds the lock on the file',
  };
  return new VirtkeepError('file_busy', params);
}

class HeldLock implements FileLock {
  readonly path: string;
  readonly mode: LockMode;
  readonly handle: FileHandle;
  readonly excludes: boolean;
  #released = false;

  constructor(path: string, mode: LockMode, handle: FileHandle, excludes: boolean) {
    this.path = path;
    this.mode = mode;
    this.handle = handle;
    this.excludes = excludes;
  }

  async confirm(): Promise<void> {
    if ((await setLock(this.handle.fd, this.mode, OURS)) === 'held') throw fileBusy(this.path);
  }

  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    // Before the descriptor: a process that is just being started has a copy of it for a moment.
    await setLock(this.handle.fd, 'none', OURS);
    await this.handle.close();
  }
}

async function opened(path: string, mode: LockMode): Promise<{ handle: FileHandle; mayWrite: boolean }> {
  try {
    const handle = await openForeign(path, mode === 'exclusive' ? 'update' : 'read').catch(
      (error: unknown) => {
        if (mode === 'exclusive' && errnoOf(error) === 'EACCES') return null;
        throw error;
      },
    );
    return { handle: handle ?? (await openForeign(path)), mayWrite: handle !== null };
  } catch (error) {
    throw fromIoError(error, 'opening', path);
  }
}

/**
 * Of another owner, on an export that takes root's rights away: it cannot be locked exclusively, and can still be removed.
 * Others are asked whether they use it, and a shared lock keeps writers out.
 */
async function takenUnwritable({ fd }: FileHandle): Promise<'held' | 'unsupported'> {
  const isHeld =
    (await setLock(fd, 'shared', OURS)) === 'held' ||
    (await isLocked(fd, 'exclusive', OURS)) ||
    (await isLocked(fd, 'exclusive', OF_QEMU));
  return isHeld ? 'held' : 'unsupported';
}

async function taken(
  handle: FileHandle,
  path: string,
  mode: LockMode,
): Promise<'locked' | 'held' | 'unsupported'> {
  const result = await setLock(handle.fd, mode, OURS);
  if (result === 'unsupported') await tellOnce(handle, path);
  // A VM that an agent started from the archive reads it also while no agent runs.
  if (mode === 'exclusive' && (await isLocked(handle.fd, mode, OF_QEMU))) return 'held';
  return result;
}

async function tellOnce(handle: FileHandle, path: string): Promise<void> {
  const { dev } = await handle.stat();
  if (reportedDevices.has(dev)) return;
  reportedDevices.add(dev);
  tellMissing(path);
}

/** Between opening and locking it may have been removed, and the name given to another. */
async function isStillNamed(handle: FileHandle, path: string): Promise<boolean> {
  try {
    const [locked, named] = [await handle.stat(), await lstat(path)];
    return locked.dev === named.dev && locked.ino === named.ino;
  } catch (error) {
    if (['ENOENT', 'ESTALE'].includes(errnoOf(error) ?? '')) return false;
    throw fromIoError(error, 'looking at', path);
  }
}
