/**
 * A new ISO image from the bytes of a caller. They are written under a hidden name beside the image's own, which it gets by a hard link
 * when all of it is on the disk; so nobody sees half an image, and none takes another's place. Whatever breaks off, nothing stays.
 */
import type { FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { orAborted, throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { isoIdOf } from '@virtkeep/shared/iso';
import { GiB } from '@virtkeep/shared/units';
import { publishNew } from '../../archive/index.ts';
import type { IsoPlace } from '../../iso/index.ts';
import { requireSpace } from '../../pools/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import { makeNewFile } from '../new-file.ts';
import { openUnfinished, syncUnfinished, type Unfinished, writeUnfinished } from './unfinished.ts';

export interface IsoUpload {
  place: IsoPlace;
  /** Bytes that are to come; 0: not known. */
  sizeBytes: number;
  /** What comes. Its end is the image's; when it breaks off it throws. */
  bytes: AsyncIterator<Uint8Array>;
}

/** More than any medium has. */
const MAX_BYTES = 64 * GiB;
/** Every VM may read it, whoever its QEMU runs as. */
const MODE = 0o644;

/** The workflow. Result: `{"id","pool_id","filename","path","size"}`. */
export function uploadIso({ place, sizeBytes, bytes }: IsoUpload): Workflow {
  return async context => {
    const { path, pool, filename } = place;
    const { step, effects } = context;
    const partial = join(dirname(path), `.virtkeep-${context.id}.upload`);
    await step('check', () => requireRoom(place, sizeBytes));
    const { mark } = await step('make', () => makeNewFile(context, partial, false, { inPool: true }));
    const size = await step('receive', () => receive(context, { path: partial, mark }, { bytes, sizeBytes }));
    effects.begin({ type: 'file', path, made: mark }, 'failure');
    await step('publish', () => publishNew(partial, path));
    const value = { id: isoIdOf(pool.id, filename), poolId: pool.id, filename, path, size: BigInt(size) };
    context.commit({ $case: 'uploadIso', value });
  };
}

async function requireRoom({ pool }: IsoPlace, sizeBytes: number): Promise<void> {
  if (sizeBytes > MAX_BYTES) throw tooLarge();
  await requireSpace(pool, sizeBytes);
}

const tooLarge = () => new VirtkeepError('body_too_large', { limit_bytes: MAX_BYTES });

/** @returns the size. @throws VirtkeepError bad_request when less came than was announced; body_too_large, disk_full, io_failed, canceled */
async function receive(
  context: OperationContext,
  { path, mark }: Unfinished,
  { bytes, sizeBytes }: Pick<IsoUpload, 'bytes' | 'sizeBytes'>,
): Promise<number> {
  const { progress, signal } = context;
  progress.total(sizeBytes);
  let size = 0;
  const file = await openUnfinished({ path, mark });
  try {
    for (;;) {
      const next = await orAborted(bytes.next(), signal);
      if (next.done) break;
      const offset = size;
      size += next.value.length;
      if (size > MAX_BYTES) throw tooLarge();
      await writeUnfinished(file, path, next.value, offset);
      progress.done(size);
    }
    throwIfAborted(signal);
    if (sizeBytes > 0 && size !== sizeBytes) throw new VirtkeepError('bad_request', { reason: SHORT });
    await flush(file, path);
    return size;
  } finally {
    await file.close();
  }
}

const SHORT = 'the image does not have its announced length';

async function flush(file: FileHandle, path: string): Promise<void> {
  try {
    await file.chmod(MODE);
  } catch (error) {
    throw fromIoError(error, 'syncing', path);
  }
  await syncUnfinished(file, path);
}
