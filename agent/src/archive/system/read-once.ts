import type { FileHandle } from 'node:fs/promises';
import { MiB } from '@virtkeep/shared/units';
import { punchHole } from './syscalls.ts';

/** Given back at a time. */
const PIECE_BYTES = 32 * MiB;

/**
 * A file that is read once, from its start, and then goes: what was read of it gives its room back, so what is made of it needs hardly more
 * room than the file had. Where the file system cannot do it the room comes back when the file goes.
 */
export class ReadOnce {
  readonly #file: FileHandle;
  #givenBytes = 0;
  #giving: Promise<boolean> = Promise.resolve(true);

  /** @param file is open for writing until `settled` */
  constructor(file: FileHandle) {
    this.#file = file;
  }

  /** @param bytesDone from the file's start: they were read, and nobody asks for them again */
  done(bytesDone: number): void {
    const start = this.#givenBytes;
    const end = bytesDone - (bytesDone % PIECE_BYTES);
    if (end <= start) return;
    this.#givenBytes = end;
    this.#giving = this.#giving.then(able => able && punchHole(this.#file.fd, start, end - start));
  }

  /** Nothing is done with the file any more. */
  async settled(): Promise<void> {
    await this.#giving;
  }
}
