/**
 * A small file system that tests fill. It must be mounted before the node starts: a mount made later is not seen in the
 * node's own mount namespace.
 */

import { mkdtempSync, rmdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '@virtkeep/shared/units';
import { run } from './run.ts';

export class SmallDisk {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static async mount(sizeMiB: number): Promise<SmallDisk> {
    const path = mkdtempSync('/var/tmp/small-');
    await run(['mount', '-t', 'tmpfs', '-o', `size=${sizeMiB}M`, 'tmpfs', path]);
    return new SmallDisk(path);
  }

  get freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.path);
    return bavail * bsize;
  }

  /** Takes all space but so much. */
  fill(leftMiB: number): void {
    this.free();
    const bytes = this.freeBytes - leftMiB * MiB;
    try {
      if (bytes > 0) writeFileSync(this.#filler, Buffer.alloc(bytes));
    } catch (error) {
      // somebody else took the last of it meanwhile: full it is
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
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
    rmdirSync(this.path);
  }
}
