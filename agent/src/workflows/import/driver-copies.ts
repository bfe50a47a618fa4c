/**
 * Disks of a foreign VM with the drivers of virtio put into them, on their way into a backup: copies in a directory of the operation, since the
 * file stays as it is.
 */
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { nameOf } from '@virtkeep/shared/beneath';
import { fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { roundUp } from '@virtkeep/shared/units';
import { inspectImage } from '../../appliance/index.ts';
import { convertToQcow2 } from '../../archive/index.ts';
import { SECTOR_BYTES } from '../../disks/index.ts';
import type { OperationContext } from '../context.ts';
import type { ForeignDisk } from './foreign.ts';
import { PrivateRoom } from './private-room.ts';
import { injectDrivers, type OwnImage } from './virt-v2v.ts';

export interface CopiedGuest {
  name: string;
  disks: readonly ForeignDisk[];
}

export class DriverCopies {
  readonly #room: PrivateRoom;
  readonly #images: OwnImage[] = [];
  #isClosed = false;

  private constructor(room: PrivateRoom) {
    this.#room = room;
  }

  /** @param directory beside the new backup. @throws VirtkeepError io_failed, disk_full */
  static async make(context: OperationContext, directory: string): Promise<DriverCopies> {
    for (let number = 0; ; number += 1) {
      const path = join(directory, `.virtkeep-${context.id}.${number}.v2v`);
      // another VM of the file has its own of the same operation
      if (!(await exists(path))) return new DriverCopies(await PrivateRoom.make(context, path));
    }
  }

  /**
   * Copies the disks, and has the drivers put into the copies. They are there until this is closed.
   * @returns the copies, and warnings
   * @throws VirtkeepError tool_missing, driver_injection_failed, qemu_img_failed, disk_full, timed_out, io_failed, canceled
   */
  async inject(
    context: OperationContext,
    { name, disks }: CopiedGuest,
    { forceTcg }: { forceTcg: boolean | undefined },
  ): Promise<{ disks: ForeignDisk[]; warnings: string[] }> {
    context.progress.total(disks.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0));
    let doneBytes = 0;
    for (const disk of disks) {
      await this.#copy(disk, context.signal, bytes => context.progress.done(doneBytes + bytes));
      doneBytes += disk.sizeBytes;
    }
    const warnings = await injectDrivers(context, { name, images: this.#images }, { forceTcg });
    const injected: ForeignDisk[] = [];
    for (const image of this.#images) injected.push(await readInjected(image, name, context.signal));
    return { disks: injected, warnings };
  }

  async #copy(
    { content, sizeBytes }: ForeignDisk,
    signal: AbortSignal,
    onBytes: (bytes: number) => void,
  ): Promise<void> {
    const name = `${this.#images.length}.qcow2`;
    const path = join(this.#room.path, name);
    const file: FileHandle = await open(this.#room.at(name), 'wx+', 0o600).catch(error => {
      throw fromIoError(error, 'making', path);
    });
    this.#images.push({ path, file, sizeBytes });
    const target = { path: nameOf(file), virtualSizeBytes: sizeBytes };
    await convertToQcow2(content, target, signal, fraction =>
      onBytes(Math.floor(fraction * sizeBytes)),
    ).catch(error => {
      throw hasKey(error, 'disk_full') ? new VirtkeepError('disk_full', { path }, { cause: error }) : error;
    });
  }

  /** Only when nothing reads of them any more; they go with the operation. Harmless when repeated. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const { file } of this.#images) await file.close();
    await this.#room.close();
  }

  /** Closes and removes them: their room is for others. Their directory goes with the operation. @throws VirtkeepError io_failed */
  async remove(): Promise<void> {
    for (const { path } of this.#images)
      await unlink(this.#room.at(basename(path))).catch(error => {
        throw fromIoError(error, 'removing', path);
      });
    await this.close();
  }
}

/**
 * Looks at an image that virt-v2v has worked on, as at any file that a program of others has written: it may name another file by now.
 * @throws VirtkeepError driver_injection_failed, foreign_disk_invalid
 */
export async function readInjected(
  { file, sizeBytes }: OwnImage,
  vm: string,
  signal: AbortSignal,
): Promise<ForeignDisk> {
  const { size } = await file.stat();
  const image = await inspectImage(
    { path: nameOf(file), offset: 0, sizeBytes: size, name: vm },
    'qcow2',
    signal,
  );
  if (image.virtualSizeBytes !== roundUp(sizeBytes, SECTOR_BYTES) || image.warnings.length > 0)
    throw new VirtkeepError('driver_injection_failed', {
      vm: `"${vm}"`,
      reason: image.warnings[0] ?? 'virt-v2v has made a disk of another size',
    });
  return { sizeBytes: image.virtualSizeBytes, content: { blockdev: image.blockdev } };
}
