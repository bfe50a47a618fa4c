/** Images in the drives of a foreign VM: their bytes as they are, since they are for the guest alone. */
import { createReadStream } from 'node:fs';
import { basename, join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError } from '@virtkeep/shared/errors';
import { writeAt } from '@virtkeep/shared/file-bytes';
import { syncDirectoryOf } from '@virtkeep/shared/files';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import type { PoolRecord } from '../../pools/index.ts';
import type { OperationContext } from '../context.ts';
import { makeHeldFile } from '../new-file.ts';
import type { ForeignImage } from './foreign.ts';

const MAX_STEM = 60;
const PIECE_BYTES = MiB;

export interface PlacedImages {
  /** By where each is to be. */
  images: Map<string, ForeignImage>;
  /** By the drive; undefined: it is empty. */
  paths: (string | undefined)[];
}

/** Names in the pool that no other image has. The same image in two drives is one. */
export function placeImages(images: readonly (ForeignImage | undefined)[], pool: PoolRecord): PlacedImages {
  const placed = new Map<string, ForeignImage>();
  const paths = images.map(image => {
    if (!image) return undefined;
    const isSame = ([, one]: [string, ForeignImage]) =>
      one.path === image.path && one.offset === image.offset && one.name === image.name;
    const former = [...placed].find(isSame)?.[0];
    if (former !== undefined) return former;
    const stem = basename(image.name)
      .replace(/\.[^.]*$/, '')
      .replaceAll(/[^\w.-]/g, '_');
    const path = join(pool.path!, `${stem.slice(0, MAX_STEM)}_${newId()}.iso`);
    placed.set(path, image);
    return path;
  });
  return { images: placed, paths };
}

/**
 * Writes them, one after another, as files that go when the operation fails.
 * @throws VirtkeepError disk_full, file_exists, io_failed, canceled
 */
export async function writeImages(
  context: OperationContext,
  images: ReadonlyMap<string, ForeignImage>,
): Promise<void> {
  for (const [target, { path, offset, sizeBytes }] of images) {
    throwIfAborted(context.signal);
    const { file } = await makeHeldFile(context, target, true, { inPool: true });
    try {
      if (sizeBytes === 0) continue;
      const { signal } = context;
      let at = 0;
      const range = { start: offset, end: offset + sizeBytes - 1 };
      const pieces: AsyncIterable<Buffer> = createReadStream(path, {
        ...range,
        signal,
        highWaterMark: PIECE_BYTES,
      });
      for await (const piece of pieces) {
        await writeAt(file, piece, at);
        at += piece.length;
      }
      await file.sync();
      await syncDirectoryOf(target);
    } catch (error) {
      throwIfAborted(context.signal);
      throw fromIoError(error, 'writing', target);
    } finally {
      await file.close();
    }
  }
}
