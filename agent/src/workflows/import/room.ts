/** Room for what is to be written of foreign images, once they are known: packed they are smaller than what comes of them. */
import { measureQcow2, type RawContent } from '../../archive/index.ts';
import { requireSpace } from '../../pools/index.ts';

/**
 * A pool that is filled to its end stops the VMs whose disks grow there.
 * @param share of an image that is written at most, from 0 to 1
 * @throws VirtkeepError pool_no_space, qemu_img_failed, canceled
 */
export async function requireRoom(
  pool: { name: string; path?: string },
  contents: readonly RawContent[],
  share: number,
  signal: AbortSignal,
): Promise<void> {
  let neededBytes = 0;
  for (const content of contents) neededBytes += await measureQcow2(content, signal);
  await requireSpace(pool, neededBytes * share);
}
