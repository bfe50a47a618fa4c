/** A directory for a program of others: what was copied for it, and nothing else. Only root looks into it, and it goes with the operation. */
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { mkdir, nameOf, openDirectory } from '@virtkeep/shared/beneath';
import { fromIoError, hasKey } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';
import type { OperationContext } from '../context.ts';

export class PrivateRoom {
  /** As people name it. */
  readonly path: string;
  readonly #directory: FileHandle;

  private constructor(path: string, directory: FileHandle) {
    this.path = path;
    this.#directory = directory;
  }

  /** Declared first. @throws VirtkeepError io_failed, disk_full, path_outside_pool */
  static async make(context: OperationContext, path: string): Promise<PrivateRoom> {
    context.effects.begin({ type: 'directory', path, own: true }, 'always');
    const directory = await mkdir(path, { mode: 0o700 })
      .then(() => openDirectory(path))
      .catch(error => {
        throw fromIoError(error, 'making', path);
      });
    return new PrivateRoom(path, directory);
  }

  /** A name that stays its own, whatever lies at its path by now. */
  get name(): string {
    return nameOf(this.#directory);
  }

  at(name: string): string {
    return join(this.name, name);
  }

  /** Whether nothing more can be written into it. */
  async isFull(): Promise<boolean> {
    try {
      const probe = await open(this.at('probe'), 'wx');
      await probe.writeFile(Buffer.alloc(MiB, 1)).finally(() => probe.close());
      return false;
    } catch (error) {
      return hasKey(fromIoError(error, 'writing', this.path), 'disk_full');
    }
  }

  /** What is in it goes with the operation. */
  async close(): Promise<void> {
    await this.#directory.close();
  }
}
