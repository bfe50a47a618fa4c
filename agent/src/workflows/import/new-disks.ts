/** Disks of a foreign VM, written as qcow2 images of their own. */
import type { FileHandle } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { nameOf, open } from '@virtkeep/shared/beneath';
import { fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { syncDirectoryOf, syncFile } from '@virtkeep/shared/files';
import { mapLimited } from '@virtkeep/shared/limit';
import { convertToQcow2 } from '../../archive/index.ts';
import { readImageHeader } from '../../disks/index.ts';
import type { OperationContext } from '../context.ts';
import { syncUnfinished } from '../files/unfinished.ts';
import { makeHeldFile } from '../new-file.ts';
import { readInjected } from './driver-copies.ts';
import type { ForeignDisk } from './foreign.ts';
import { injectDrivers, type OwnImage } from './virt-v2v.ts';

export interface NewDisk extends ForeignDisk {
  /** Of the image, which does not exist yet. */
  path: string;
}

/** So many images are written at a time: each is read by a program of its own, and more only make the storage seek. */
const MOST_AT_ONCE = 4;

/**
 * All of them or, after the first failure, none any more: when this throws, nothing writes to them. They go when the operation fails.
 * @throws VirtkeepError disk_full, file_exists, qemu_img_failed, io_failed, canceled
 */
export async function writeDisks(context: OperationContext, disks: readonly NewDisk[]): Promise<void> {
  const files: FileHandle[] = [];
  try {
    for (const { path } of disks)
      files.push((await makeHeldFile(context, path, true, { inPool: true })).file);
    await writeAll(context, disks, files);
  } finally {
    // what was written is durable by now, or has failed already
    await Promise.allSettled(files.map(file => file.close()));
  }
}

async function writeAll(
  context: OperationContext,
  disks: readonly NewDisk[],
  files: readonly FileHandle[],
): Promise<void> {
  const stop = new AbortController();
  const signal = AbortSignal.any([context.signal, stop.signal]);
  const doneBytes = disks.map(() => 0);
  context.progress.total(disks.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0));
  const write = async (index: number) => {
    await writeDisk(disks[index]!, files[index]!, signal, bytes => {
      doneBytes[index] = bytes;
      context.progress.done(doneBytes.reduce((sum, done) => sum + done, 0));
    });
  };
  let failure: { error: unknown } | undefined;
  const width = Math.min(availableParallelism(), MOST_AT_ONCE);
  await mapLimited([...disks.keys()], width, index =>
    write(index).catch((error: unknown) => {
      failure ??= { error };
      stop.abort(error);
    }),
  );
  throwIfAborted(context.signal);
  if (failure) throw failure.error;
}

/**
 * Has the drivers of virtio put into the disks of a guest that are written, and are nobody's yet.
 * @returns warnings
 * @throws VirtkeepError as `injectDrivers`; io_failed
 */
export async function driveDisks(
  context: OperationContext,
  { name, paths }: { name: string; paths: readonly string[] },
  options: { forceTcg: boolean | undefined },
): Promise<string[]> {
  const images: OwnImage[] = [];
  try {
    for (const path of paths) {
      const { virtualSize } = await readImageHeader(path);
      const file = await open(path, 'r+').catch(error => {
        throw fromIoError(error, 'opening', path);
      });
      images.push({ path, file, sizeBytes: virtualSize });
    }
    const warnings = await injectDrivers(context, { name, images }, options);
    for (const image of images) await readInjected(image, name, context.signal);
    for (const path of paths) await syncFile(path);
    return warnings;
  } finally {
    for (const { file } of images) await file.close();
  }
}

async function writeDisk(
  { path, sizeBytes, content }: NewDisk,
  file: FileHandle,
  signal: AbortSignal,
  onBytes: (doneBytes: number) => void,
): Promise<void> {
  throwIfAborted(signal);
  try {
    const target = { path: nameOf(file), virtualSizeBytes: sizeBytes };
    await convertToQcow2(content, target, signal, fraction => onBytes(Math.floor(fraction * sizeBytes)));
    await syncUnfinished(file, path);
    await syncDirectoryOf(path);
    onBytes(sizeBytes);
  } catch (error) {
    if (hasKey(error, 'disk_full')) throw new VirtkeepError('disk_full', { path }, { cause: error });
    throw error;
  }
}
