/**
 * A QEMU without room for what its guest writes stands still until there is some, and the one of libguestfs's appliance tells nobody:
 * its program would wait for hours. So the room is watched while a program works on images, and the program is ended when there is none.
 */
import { dirname } from 'node:path';
import { sleep } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';
import { fsFacts } from '../../pools/index.ts';

const POLL_MS = 2_000;
/** An image grows by clusters, and by tables of them. */
const LEAST_BYTES = MiB;

/**
 * Does the work under a signal that also fires when a file system of the images is full.
 * @throws VirtkeepError disk_full, also in place of what the work says when its images have no room; what the work throws
 */
export async function withRoom<T>(
  images: readonly string[],
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const [over, full] = [new AbortController(), new AbortController()];
  const watching = watch(images, AbortSignal.any([signal, over.signal]), full);
  try {
    return await work(AbortSignal.any([signal, full.signal]));
  } catch (error) {
    if (signal.aborted) throw error;
    throw (await withoutRoom(images)) ?? error;
  } finally {
    over.abort();
    await watching;
  }
}

async function watch(images: readonly string[], ending: AbortSignal, full: AbortController): Promise<void> {
  while (!ending.aborted && !full.signal.aborted) {
    const error = await withoutRoom(images);
    if (error) full.abort(error);
    else await sleep(POLL_MS, ending).catch(() => {});
  }
}

/** What cannot be looked at has no say: the work tells what is wrong with it. */
async function withoutRoom(images: readonly string[]): Promise<VirtkeepError | undefined> {
  for (const path of images) {
    const facts = await fsFacts(dirname(path)).catch(() => undefined);
    if (facts && facts.available < LEAST_BYTES) return new VirtkeepError('disk_full', { path });
  }
  return undefined;
}
