/** A foreign image's data, made a qcow2 of its own. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Blockdev } from '../../appliance/index.ts';
import { qemuImg } from '../../disks/index.ts';
import { makeDurable } from '../template/images.ts';

const asFile = (blockdev: Blockdev): string => `json:${JSON.stringify(blockdev)}`;

/**
 * Bytes that the copy takes at most, as far as the image says where it has data.
 * @throws VirtkeepError qemu_img_failed, timed_out, canceled
 */
export async function measureCopy(blockdev: Blockdev, signal: AbortSignal): Promise<number> {
  const text = await qemuImg('measure', ['--output=json', '-O', 'qcow2', asFile(blockdev)], {
    signal,
    untrusted: 'at_length',
  });
  const { required } = JSON.parse(text) as { required?: unknown };
  return typeof required === 'number' ? required : 0;
}

/**
 * Writes the copy into an existing empty file, durably; zeros become holes.
 * @param onProgress share of the work done, 0–1
 * @throws VirtkeepError disk_full, qemu_img_failed, io_failed, canceled
 */
export async function copyImageInto(
  path: string,
  blockdev: Blockdev,
  signal: AbortSignal,
  onProgress: (share: number) => void,
): Promise<void> {
  await qemuImg('convert', ['-W', '-m', '8', '-O', 'qcow2', asFile(blockdev), path], {
    signal,
    untrusted: 'at_length',
    onProgress: percent => onProgress(percent / 100),
  }).catch((error: unknown) => {
    if (!(error instanceof VirtkeepError) || !/No space left/.test(error.message)) throw error;
    throw new VirtkeepError('disk_full', { path }, { cause: error });
  });
  await makeDurable(path);
  onProgress(1);
}
