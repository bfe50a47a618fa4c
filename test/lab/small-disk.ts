/**
 * A small file system that tests fill. It must be mounted before the node starts: a mount made later is not seen in the
 * node's own mount namespace.
 */

import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '@virtkeep/shared/units';
import { run } from './run.ts';

/** The last one finds the last byte: no file system gives out less. */
const FILLING_STEPS_BYTES = [MiB, 4096, 512, 1];

export class SmallDisk {
  readonly path: string;
  readonly #image: string | null;

  private constructor(path: string, image: string | null) {
    this.path = path;
    this.#image = image;
  }

  /** @param path where; default: a directory of its own */
  static async mount(sizeMiB: number, path = mkdtempSync('/var/tmp/small-')): Promise<SmallDisk> {
    mkdirSync(path, { recursive: true });
    await run(['mount', '-t', 'tmpfs', '-o', `size=${sizeMiB}M`, 'tmpfs', path]);
    return new SmallDisk(path, null);
  }

  /** An ext4 in a file beside the mount point, with a journal as servers have it. */
  static async mountLoop(sizeMiB: number, path: string): Promise<SmallDisk> {
    mkdirSync(path, { recursive: true });
    const image = `${path}.ext4`;
    await run(['truncate', '-s', `${sizeMiB}M`, image]);
    await run(['mkfs.ext4', '-q', '-F', '-m', '0', '-E', 'lazy_itable_init=0,lazy_journal_init=0', image]);
    await run(['mount', '-o', 'loop', image, path]);
    rmSync(join(path, 'lost+found'), { recursive: true, force: true });
    return new SmallDisk(path, image);
  }

  get freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.path);
    return bavail * bsize;
  }

  /** Takes all space but so much; with nothing left, the last byte. */
  fill(leftMiB: number): void {
    this.free();
    const file = openSync(this.#filler, 'w');
    try {
      for (const stepBytes of FILLING_STEPS_BYTES) {
        if (leftMiB > 0 && stepBytes < MiB) break;
        while (this.freeBytes - stepBytes >= leftMiB * MiB || leftMiB === 0)
          if (!writeMore(file, stepBytes)) break;
      }
    } finally {
      closeSync(file);
    }
  }

  /** Gives back what `fill` took. */
  free(): void {
    rmSync(this.#filler, { force: true });
  }

  get #filler(): string {
    return join(this.path, 'filler');
  }

  /** After the node has stopped. */
  async unmount(): Promise<void> {
    await run(['umount', this.path]);
    rmSync(this.path, { recursive: true, force: true });
    if (this.#image !== null) rmSync(this.#image);
  }
}

/** @returns false when there is no room for it; somebody else may have taken the last of it meanwhile */
function writeMore(file: number, bytes: number): boolean {
  try {
    return writeSync(file, Buffer.alloc(bytes)) === bytes;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    return false;
  }
}
