/** Room for what is to be written of foreign images, once they are known: packed they are smaller than what comes of them. */
import { measureQcow2, type RawContent } from '../../archive/index.ts';
import { requireSpace } from '../../pools/index.ts';
import { COMPRESSED_SHARE } from '../archives/conversion.ts';

/**
 * A pool that is filled to its end stops the VMs whose disks grow there.
 * @param compress into an archive of that kind: each image is a file of its own until it is compressed
 * @returns what the image of each takes at most
 * @throws VirtkeepError pool_no_space, qemu_img_failed, canceled
 */
export async function requireRoom(
  pool: { name: string; path?: string },
  contents: readonly RawContent[],
  compress: boolean,
  signal: AbortSignal,
): Promise<number[]> {
  const sizes: number[] = [];
  for (const content of contents) sizes.push(await measureQcow2(content, signal));
  await requireSpace(pool, bytesOf(sizes, compress));
  return sizes;
}

/** What images of these sizes take at most, as they are or in a compressed archive. */
export function bytesOf(sizes: readonly number[], compress: boolean): number {
  const sum = sizes.reduce((total, size) => total + size, 0);
  return compress ? sum * COMPRESSED_SHARE + Math.max(0, ...sizes) : sum;
}
