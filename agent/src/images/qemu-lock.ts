/**
 * QEMU's locks on image files. Each process that has an image open holds shared locks on some bytes of this range, on
 * network file systems for all nodes to see; so an exclusive lock on all of it proves that nobody has the image open, and
 * while it is held nobody can open it (QEMU: block/file-posix.c, `raw_handle_perm_lock`).
 */
import { type FileHandle, open } from 'node:fs/promises';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';
import koffi from 'koffi';

const fcntl = koffi.load('libc.so.6').func('fcntl', 'int', ['int', 'int', 'void *']);

/** Locks of an open file description (fcntl(2)): they go with it, and with nothing else. */
const F_OFD_GETLK = 36;
const F_OFD_SETLK = 37;
const F_WRLCK = 1;
const F_UNLCK = 2;
/** struct flock of 64-bit Linux. */
const FLOCK_BYTES = 32;
/** Permissions begin at byte 100, what is not shared at byte 200. */
const FIRST_BYTE = 100n;
const LENGTH_BYTES = 200n;

export interface HeldImage {
  release(): Promise<void>;
}

/**
 * Keeps everybody from opening an image as long as it is held.
 * @returns null when somebody has it open. Where the file system has no locks, or the file may not be written to, it is held
 *   as far as that goes.
 * @throws VirtkeepError io_failed, also when there is no such file
 */
export async function holdImage(path: string): Promise<HeldImage | null> {
  const file = await openFor(path);
  try {
    const range = () => {
      const flock = Buffer.alloc(FLOCK_BYTES);
      flock.writeInt16LE(F_WRLCK, 0);
      flock.writeBigInt64LE(FIRST_BYTE, 8);
      flock.writeBigInt64LE(LENGTH_BYTES, 16);
      return flock;
    };
    const found = range();
    if (!(await lockCall(file.fd, F_OFD_SETLK, range())) && (await lockCall(file.fd, F_OFD_GETLK, found))) {
      if (found.readInt16LE(0) !== F_UNLCK) {
        await file.close();
        return null;
      }
    }
    return { release: () => file.close() };
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function openFor(path: string): Promise<FileHandle> {
  try {
    return await open(path, 'r+');
  } catch (error) {
    if (!['EACCES', 'EPERM', 'EROFS'].includes(errnoOf(error) ?? ''))
      throw fromIoError(error, 'opening', path);
  }
  return open(path, 'r').catch(error => {
    throw fromIoError(error, 'opening', path);
  });
}

/** On a network file system the answer is the server's and may be late: off the main thread. */
function lockCall(fd: number, command: number, flock: Buffer): Promise<boolean> {
  return new Promise((resolve, reject) => {
    fcntl.async(fd, command, flock, (error: unknown, result: number) => {
      if (error) reject(error);
      else resolve(result === 0);
    });
  });
}
