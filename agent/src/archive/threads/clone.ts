import { throwIfAborted } from '@virtkeep/shared/abort';
import { DATA_ALIGN } from '../format/layout.ts';
import { cloneRange, type FilePlace } from '../system/syscalls.ts';

/** Reflinked at a time, so that a cancellation is seen in between. */
const CLONE_BYTES = 4 * 1024 * 1024 * 1024;

export interface CloneOptions {
  signal: AbortSignal;
  onProgress?: ((bytesDone: number) => void) | undefined;
}

/**
 * Shares the extents of `lengthBytes` bytes (XFS, btrfs: milliseconds and no space), as far as whole multiples of
 * 4096 go; the rest is the caller's to copy.
 * @returns bytes shared; 0 where the file systems cannot do it, as on ext4, or the places are not aligned
 * @throws VirtkeepError canceled
 */
export async function cloneWhole(
  from: FilePlace,
  to: FilePlace,
  lengthBytes: number,
  { signal, onProgress }: CloneOptions,
): Promise<number> {
  const whole = lengthBytes - (lengthBytes % DATA_ALIGN);
  if (from.offset % DATA_ALIGN !== 0 || to.offset % DATA_ALIGN !== 0) return 0;
  for (let done = 0; done < whole; ) {
    throwIfAborted(signal);
    const length = Math.min(CLONE_BYTES, whole - done);
    if (!(await cloneRange(after(to, done), after(from, done), length))) return 0;
    done += length;
    onProgress?.(done);
  }
  return whole;
}

const after = ({ fd, offset }: FilePlace, bytes: number): FilePlace => ({ fd, offset: offset + bytes });
