/**
 * Raw disks that become qcow2 images of one file at the same time. How much an image takes is known only when it is there, and the next one
 * must begin somewhere: each has a window of what it takes at most, beyond which QEMU cannot write.
 */
import { truncate } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { GiB, roundUp } from '@virtkeep/shared/units';
import { dataOffsetFor } from '../format/tar-format.ts';
import { convertInto, copyAt, createQcow2, imageEnd, type RawContent } from './raw.ts';

/** Grain to which a qcow2 converted in place is rounded up: QEMU's clusters. */
export const QCOW2_GRAIN = 65_536;

/**
 * For all of them together. QEMU moves its table of reference counts when an image outgrows 16 TiB, of which `measureQcow2` does not know, and
 * ext4 has no larger files; half of that is far from it.
 */
export const MOST_SIDE_BY_SIDE_BYTES = 8 * 1024 * GiB;

export interface RawDisk {
  /** Of the member. */
  name: string;
  content: RawContent;
  virtualSizeBytes: number;
  /** What its image takes, at most: as `measureQcow2` tells. */
  mostBytes: number;
  formerPath: string | null;
}

/** A part of a file, for one image. They have nothing in common: QEMU's lock, which is on the whole file, is not needed. */
export interface Window {
  /** A multiple of 4096. */
  offset: number;
  /** A multiple of {@link QCOW2_GRAIN}. */
  sizeBytes: number;
}

/** Windows one behind the other, with room for a member's header before each. Pure. @param tarOffset where the first header goes */
export function windowsOf(
  disks: readonly Pick<RawDisk, 'name' | 'mostBytes'>[],
  tarOffset: number,
): Window[] {
  let end = tarOffset;
  return disks.map(({ name, mostBytes }) => {
    const offset = dataOffsetFor(end, name, true);
    const sizeBytes = roundUp(mostBytes, QCOW2_GRAIN);
    end = offset + sizeBytes;
    return { offset, sizeBytes };
  });
}

export interface SideBySideOptions {
  /** The file; behind the first window there is nothing yet. */
  path: string;
  /** An empty file for what qemu-img writes before it is brought to its place. */
  empty: string;
  atOnce: number;
  signal: AbortSignal;
  /** @param fraction of the disk of that index */
  onProgress: (index: number, fraction: number) => void;
}

/**
 * Converts each disk into its window. The first that fails ends the others; nothing writes any more when this has ended.
 * @returns bytes of each image, multiples of {@link QCOW2_GRAIN}
 * @throws VirtkeepError qemu_img_failed, disk_full, io_failed, canceled
 */
export async function convertSideBySide(
  disks: readonly RawDisk[],
  windows: readonly Window[],
  { path, empty, atOnce, signal, onProgress }: SideBySideOptions,
): Promise<number[]> {
  const failing = new AbortController();
  const all = AbortSignal.any([signal, failing.signal]);
  const { offset, sizeBytes } = windows.at(-1)!;
  // QEMU opens no window that is not there
  await truncate(path, offset + sizeBytes).catch((error: unknown) => {
    throw fromIoError(error, 'writing', path);
  });
  const begun = emptyImages(disks, windows, { path, empty, signal: all });
  const sizes: number[] = [];
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < disks.length && !all.aborted) {
      const index = next;
      next += 1;
      await begun[index];
      const report = (fraction: number) => onProgress(index, fraction);
      sizes[index] = await convertOne(disks[index]!, { path, window: windows[index]!, signal: all }, report);
    }
  };
  const lanes = Array.from({ length: atOnce }, () => lane().catch(error => failing.abort(error)));
  await Promise.all(lanes);
  await Promise.allSettled(begun);
  throwIfAborted(signal);
  if (failing.signal.aborted) throw failing.signal.reason;
  return sizes;
}

/** Puts an empty image at the start of each window, in turn; who waits for one does not wait for those behind it. */
function emptyImages(
  disks: readonly RawDisk[],
  windows: readonly Window[],
  { path, empty, signal }: { path: string; empty: string; signal: AbortSignal },
): Promise<void>[] {
  let turn = Promise.resolve();
  return disks.map(({ virtualSizeBytes }, index) => {
    turn = turn.then(async () => {
      throwIfAborted(signal);
      await createQcow2(empty, virtualSizeBytes, signal);
      await copyAt(empty, path, windows[index]!.offset);
    });
    // who converts it hears of its error
    turn.catch(() => {});
    return turn;
  });
}

async function convertOne(
  { content }: RawDisk,
  { path, window, signal }: { path: string; window: Window; signal: AbortSignal },
  onProgress: (fraction: number) => void,
): Promise<number> {
  await convertInto(content, { path, ...window, bytesPerSecond: 0, isNew: true }, signal, onProgress);
  const end = roundUp(await imageEnd({ path, ...window }, signal), QCOW2_GRAIN);
  if (end > 0 && end <= window.sizeBytes) return end;
  const reason = `the image ends at ${end} of ${window.sizeBytes} bytes`;
  throw new VirtkeepError('qemu_img_failed', { command: 'check', reason });
}
