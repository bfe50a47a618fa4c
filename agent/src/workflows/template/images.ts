/** New images from old ones: whole copies, by sharing extents where the file system can, and empty overlays. */
import { chmod, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError } from '@virtkeep/shared/errors';
import { syncDirectoryOf } from '@virtkeep/shared/files';
import { convertImage, createImage, imageInfo, type Layer, shareExtents } from '../../disks/index.ts';
import { requireSpace } from '../../pools/index.ts';

/** Guests' data are nobody else's; libvirt gives the files to QEMU's user at the start. */
const MODE = 0o600;

/** An image to be copied with all that lies below it. */
export interface CopySource {
  path: string;
  format: string;
  /** Top to bottom. */
  layers: readonly Layer[];
}

/** Bytes that a copy takes at most. */
export function bytesOf({ layers }: Pick<CopySource, 'layers'>): number {
  return layers.reduce((sum, layer) => sum + layer.allocatedSize, 0);
}

/**
 * Copies an image that nobody writes to into a new, empty file, as one layer, durably.
 * @param onProgress share of the work done, 0–1
 * @throws VirtkeepError pool_no_space, qemu_img_failed, io_failed, canceled
 */
export async function copyImage(
  source: CopySource,
  target: { path: string; format: string },
  signal: AbortSignal,
  onProgress: (share: number) => void,
): Promise<void> {
  if (!(await sharesExtents(source, target, signal))) {
    const directory = dirname(target.path);
    await requireSpace({ name: directory, path: directory }, bytesOf(source));
    await convertImage(source.path, target.path, {
      signal,
      sourceFormat: source.format,
      targetFormat: target.format,
      onProgress: percent => onProgress(percent / 100),
    });
  }
  await makeDurable(target.path);
  onProgress(1);
}

/** The file as a whole is the copy when it is one layer; snapshots inside of it would come along. */
async function sharesExtents(
  { path, format, layers }: CopySource,
  target: { path: string; format: string },
  signal: AbortSignal,
): Promise<boolean> {
  if (layers.length > 1 || layers[0]!.backingFile !== undefined || format !== target.format) return false;
  const { internalSnapshots } = await imageInfo(path, { signal, format });
  return internalSnapshots.length === 0 && shareExtents(path, target.path);
}

/** An empty overlay, durably. Nothing is read from what it stands on, which need not be there yet. */
export async function makeOverlay(
  path: string,
  backing: { path: string; format: string },
  virtualSize: number,
  signal: AbortSignal,
): Promise<void> {
  throwIfAborted(signal);
  await createImage(path, { signal, format: 'qcow2', backing, virtualSize });
  await makeDurable(path);
}

/** Makes an image that was just written survive a power cut, readable by its owner alone. @throws VirtkeepError io_failed */
export async function makeDurable(path: string): Promise<void> {
  try {
    await chmod(path, MODE);
    const file = await open(path, 'r+');
    await file.sync().finally(() => file.close());
    await syncDirectoryOf(path);
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
}
