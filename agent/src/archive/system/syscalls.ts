import { constants } from 'node:fs';
import koffi from 'koffi';

/**
 * The few system calls Node lacks. Those that ask the file system may block for ever when it hangs: the synchronous ones are
 * for worker threads, the main thread takes the ones that end in `Aside`, which wait in a thread of libuv.
 */
const libc = koffi.load('libc.so.6');
const lseek = libc.func('int64_t lseek(int fd, int64_t offset, int whence)');
const ioctl = libc.func('int ioctl(int fd, unsigned long request, void *argument)');
const fcntl = libc.func('int fcntl(int fd, int command, ...)');
const fcntlLock = libc.func('fcntl', 'int', ['int', 'int', 'void *']);
const fallocate = libc.func('int fallocate(int fd, int mode, int64_t offset, int64_t length)');
const syncRange = libc.func(
  'int sync_file_range(int fd, int64_t offset, int64_t length, unsigned int flags)',
);
const sysconf = libc.func('long sysconf(int name)');
const madvise = libc.func('int madvise(void *address, size_t length, int advice)');
const memcpy = libc.func('void *memcpy(void *to, void *from, size_t count)');
const fadvise = libc.func('int posix_fadvise(int fd, int64_t offset, int64_t length, int advice)');

const SEEK_END = 2;
const SEEK_DATA = 3;
const SEEK_HOLE = 4;
const F_GETFL = 3;
const F_SETFL = 4;
/** Keep size, punch hole: linux/falloc.h */
const PUNCH_HOLE = 0x01 | 0x02;
const COLLAPSE_RANGE = 0x08;
/** Starts writing, waits for nothing: linux/fs.h */
const SYNC_WRITE = 2;
/** asm-generic/mman-common.h */
const MEMORY_DONTNEED = 4;
/** _SC_PAGESIZE: bits/confname.h */
const PAGE_SIZE_NAME = 30;
const ADVICE_RANDOM = 1;
const ADVICE_WILLNEED = 3;
const ADVICE_DONTNEED = 4;
/** _IOW(0x94, 13, struct file_clone_range), linux/fs.h */
const FICLONERANGE = 0x4020940d;
const { ENXIO, EAGAIN, EACCES } = koffi.os.errno as { ENXIO: number; EAGAIN: number; EACCES: number };

/** Locks of an open file description: they go with its last descriptor, and with nothing else (fcntl(2)). */
const F_OFD_GETLK = 36;
const F_OFD_SETLK = 37;
const LOCK_TYPES = { shared: 0, exclusive: 1, none: 2 } as const;
/** struct flock of 64-bit Linux. */
const FLOCK_BYTES = 32;

/** A range of bytes to be locked; whether the file has them does not matter. */
export interface LockRange {
  start: bigint;
  lengthBytes: bigint;
}

/** Below this a call costs more than it saves. */
const LARGE_COPY_BYTES = 64 * 1024;

/** Copies all of `from` to the start of `to`, which do not overlap. V8 copies memory that threads share word by word, ten times as slowly. */
export function copyShared(to: Uint8Array, from: Uint8Array): void {
  if (from.length < LARGE_COPY_BYTES || from.length > to.length) to.set(from);
  else memcpy(to, from, from.length);
}

/** Gives the pages of page-aligned memory back, which reads as zeros then: private anonymous memory that no thread is using. */
export const releasePages = (memory: Buffer): void => void madvise(memory, memory.length, MEMORY_DONTNEED);

/** Bytes of a page of memory. */
export const pageSize = (): number => Number(sysconf(PAGE_SIZE_NAME));

/** Size of a file or block device. */
export const sizeOf = (fd: number): number => Number(lseek(fd, 0, SEEK_END));

/**
 * Start of the next data at or after `offset`; Infinity when only a hole follows; `offset` itself where the file
 * system (or a block device) cannot tell.
 */
export function nextData(fd: number, offset: number): number {
  const found = Number(lseek(fd, offset, SEEK_DATA));
  if (found >= 0) return found;
  return koffi.errno() === ENXIO ? Number.POSITIVE_INFINITY : offset;
}

/** `sizeOf`, for the main thread. */
export const sizeOfAside = async (fd: number): Promise<number> => lseekAside(fd, 0, SEEK_END);

/**
 * `nextData`, for the main thread. koffi loses errno there, so that "only a hole follows" looks like a failure: the answer
 * is `offset` for both, since zeros that are read in vain harm nobody, and data that are left out are lost.
 */
export async function nextDataAside(fd: number, offset: number): Promise<number> {
  const found = await lseekAside(fd, offset, SEEK_DATA);
  return found >= 0 ? found : offset;
}

/** `nextHole`, for the main thread. */
export async function nextHoleAside(fd: number, offset: number): Promise<number> {
  const found = await lseekAside(fd, offset, SEEK_HOLE);
  return found >= 0 ? found : Number.POSITIVE_INFINITY;
}

function lseekAside(fd: number, offset: number, whence: number): Promise<number> {
  return new Promise((resolve, reject) => {
    lseek.async(fd, offset, whence, (error: unknown, found: number | bigint) => {
      if (error) reject(error);
      else resolve(Number(found));
    });
  });
}

/** Start of the next hole after data at `offset`; Infinity where it cannot be told. */
export function nextHole(fd: number, offset: number): number {
  const found = Number(lseek(fd, offset, SEEK_HOLE));
  return found >= 0 ? found : Number.POSITIVE_INFINITY;
}

/** A place in an open file. */
export interface FilePlace {
  fd: number;
  offset: number;
}

/**
 * Shares extents of `source` with `target` (XFS, btrfs). All three numbers are multiples of the block size.
 * @returns false when the file systems cannot do it; the bytes are then to be copied.
 */
export function cloneRange(target: FilePlace, source: FilePlace, lengthBytes: number): Promise<boolean> {
  const argument = Buffer.alloc(32);
  argument.writeBigInt64LE(BigInt(source.fd), 0);
  argument.writeBigUInt64LE(BigInt(source.offset), 8);
  argument.writeBigUInt64LE(BigInt(lengthBytes), 16);
  argument.writeBigUInt64LE(BigInt(target.offset), 24);
  // Asynchronous, since dirty pages of the source are flushed first (seconds); koffi loses errno then, which is not
  // needed: whatever the reason, copying is the answer.
  return new Promise((resolve, reject) => {
    ioctl.async(target.fd, FICLONERANGE, argument, (error: unknown, result: number) => {
      if (error) reject(error);
      else resolve(result === 0);
    });
  });
}

function flockOf(type: keyof typeof LOCK_TYPES, { start, lengthBytes }: LockRange): Buffer {
  const flock = Buffer.alloc(FLOCK_BYTES);
  flock.writeInt16LE(LOCK_TYPES[type], 0);
  flock.writeBigInt64LE(start, 8);
  flock.writeBigInt64LE(lengthBytes, 16);
  return flock;
}

/** On a network file system a lock is an answer of its server, which may never come: off the main thread. */
const lockCall = (fd: number, command: number, flock: Buffer): Promise<boolean> =>
  new Promise((resolve, reject) => {
    fcntlLock.async(fd, command, flock, (error: unknown, result: number) => {
      if (error) reject(error);
      else resolve(result === 0);
    });
  });

/**
 * Takes, changes or gives back (`none`) a lock of an open file description; never waits for who has it. `exclusive` needs
 * a descriptor that is open for writing.
 * @returns `held`: somebody else has it; `unsupported`: the file system has no such locks
 */
export async function setLock(
  fd: number,
  type: keyof typeof LOCK_TYPES,
  range: LockRange,
): Promise<'locked' | 'held' | 'unsupported'> {
  if (await lockCall(fd, F_OFD_SETLK, flockOf(type, range))) return 'locked';
  if (type !== 'none' && (await isLocked(fd, type, range))) return 'held';
  // The asynchronous call keeps errno to itself. Both calls were answered, so this one is, too.
  if (fcntlLock(fd, F_OFD_SETLK, flockOf(type, range)) === 0) return 'locked';
  return [EAGAIN, EACCES].includes(koffi.errno()) ? 'held' : 'unsupported';
}

/** Whether somebody else's lock is in the way of this one; false where the file system has none. */
export async function isLocked(fd: number, type: 'shared' | 'exclusive', range: LockRange): Promise<boolean> {
  const flock = flockOf(type, range);
  return (await lockCall(fd, F_OFD_GETLK, flock)) && flock.readInt16LE(0) !== LOCK_TYPES.none;
}

/** Starts reading a range in the background. Advice only: failures do not matter. */
export const willNeed = (fd: number, offset: number, lengthBytes: number): void =>
  void fadvise(fd, offset, lengthBytes, ADVICE_WILLNEED);

/** Has the kernel read no more of an open file than it is asked for, as long as that is open. */
export const readNothingAhead = (fd: number): void => void fadvise(fd, 0, 0, ADVICE_RANDOM);

/** Drops clean cached pages of a range, so that a backup does not push the guests' pages out of memory. */
export const dontNeed = (fd: number, offset: number, lengthBytes: number): void =>
  void fadvise(fd, offset, lengthBytes, ADVICE_DONTNEED);

/** `dontNeed`, for the main thread. */
export function dontNeedAside(fd: number, offset: number, lengthBytes: number): Promise<void> {
  return new Promise(resolve => {
    fadvise.async(fd, offset, lengthBytes, ADVICE_DONTNEED, () => resolve());
  });
}

/** Has the kernel begin to write what a file has in memory alone. Advice only: what it comes to is heard of by fdatasync. For the main thread. */
export function startWriting(fd: number): Promise<void> {
  return new Promise(resolve => {
    syncRange.async(fd, 0, 0, SYNC_WRITE, () => resolve());
  });
}

/** Gives back the room of a range, which reads as zeros then; for the main thread. @returns false where that is impossible */
export function punchHole(fd: number, offset: number, lengthBytes: number): Promise<boolean> {
  return new Promise(resolve => {
    fallocate.async(fd, PUNCH_HOLE, offset, lengthBytes, (error: unknown, result: number) =>
      resolve(!error && result === 0),
    );
  });
}

/**
 * Takes a range out of a file: what is behind it moves to its start, without being copied (ext4, XFS). Both numbers are multiples of the
 * block size, and something is behind it. For the main thread. @returns false where that is impossible
 */
export function collapseRange(fd: number, offset: number, lengthBytes: number): Promise<boolean> {
  return new Promise(resolve => {
    fallocate.async(fd, COLLAPSE_RANGE, offset, lengthBytes, (error: unknown, result: number) =>
      resolve(!error && result === 0),
    );
  });
}

/** Turns O_DIRECT off where a write was refused. @returns false when it was off already */
export function leaveDirect(fd: number): boolean {
  const flags = Number(fcntl(fd, F_GETFL));
  if (flags < 0 || (flags & constants.O_DIRECT) === 0) return false;
  return fcntl(fd, F_SETFL, 'int', flags & ~constants.O_DIRECT) === 0;
}
