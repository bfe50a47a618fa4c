import { open } from 'node:fs/promises';
import { fromIoError } from '@virtkeep/shared/errors';
import koffi from 'koffi';

const ioctl = koffi.load('libc.so.6').func('int ioctl(int fd, unsigned long request, long argument)');
/** _IOW(0x94, 9, int), linux/fs.h */
const FICLONE = 0x40049409;

/**
 * Makes a file that is there consist of another one's extents (XFS, btrfs); it stays the same file, which `copyFile` does not
 * promise.
 * @returns false, and nothing has changed, where the file systems cannot do it
 * @throws VirtkeepError io_failed
 */
export async function shareExtents(path: string, target: string): Promise<boolean> {
  const source = await opened(path, 'r');
  try {
    const file = await opened(target, 'r+');
    try {
      return await cloneWhole(file.fd, source.fd);
    } finally {
      await file.close();
    }
  } finally {
    await source.close();
  }
}

async function opened(path: string, flags: 'r' | 'r+') {
  return open(path, flags).catch(error => {
    throw fromIoError(error, 'opening', path);
  });
}

/** Dirty pages of the source are flushed first, which takes seconds: off the main thread. */
function cloneWhole(targetFd: number, sourceFd: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    ioctl.async(targetFd, FICLONE, sourceFd, (error: unknown, result: number) => {
      if (error) reject(error);
      else resolve(result === 0);
    });
  });
}
