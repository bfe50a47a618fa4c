/** Disks of a foreign VM that are converted before it is their turn in the archive: several at a time, into spare files beside it. */
import type { FileHandle } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { nameOf } from '@virtkeep/shared/beneath';
import { fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { convertToQcow2, ReadOnce } from '../../archive/index.ts';
import type { OperationContext } from '../context.ts';
import type { EffectHandle } from '../effect.ts';
import { makeHeldFile } from '../new-file.ts';
import type { ForeignDisk } from './foreign.ts';
import type { ConversionLimits } from './limits.ts';
import { sparePath } from './spare.ts';

export interface AheadOptions {
  /** In the order in which they are asked for. */
  disks: readonly ForeignDisk[];
  /** Of the spare files. */
  directory: string;
  limits: ConversionLimits;
  onProgress: (index: number, fraction: number) => void;
}

interface Spare {
  file: FileHandle;
  once: ReadOnce;
  handle: EffectHandle;
}

/**
 * Conversions begin in the order of the disks, and are asked for in that order. The first that fails ends all others: `signal` fires with
 * its error. Spare files that are left go with the operation.
 */
export class ConversionsAhead {
  /** Fires on cancel, and when a conversion has failed. */
  readonly signal: AbortSignal;
  readonly #context: OperationContext;
  readonly #options: AheadOptions;
  readonly #failing = new AbortController();
  readonly #spares = new Map<number, Promise<Spare>>();
  /** The first disk that was not begun. */
  #next = 0;
  #running = 0;

  constructor(context: OperationContext, options: AheadOptions) {
    this.#context = context;
    this.#options = options;
    this.signal = AbortSignal.any([context.signal, this.#failing.signal]);
  }

  /** Whether its turn comes when it is, or was, converted into a spare file already. */
  hasBegun(index: number): boolean {
    return index < this.#next;
  }

  /** Does the conversion of the next disk, while others are converted ahead. */
  async inPlace<T>(index: number, work: () => Promise<T>): Promise<T> {
    this.#next = index + 1;
    this.#running += 1;
    this.#fill();
    try {
      return await work();
    } finally {
      this.#running -= 1;
      this.#fill();
    }
  }

  /**
   * @returns the converted disk, until it is released: a path, and what gives its room back
   * @throws VirtkeepError qemu_img_failed, disk_full, io_failed, canceled
   */
  async converted(index: number): Promise<{ path: string; once: ReadOnce }> {
    this.#fill();
    // nothing is begun any more when another one failed
    throwIfAborted(this.signal);
    const { file, once } = await this.#spares.get(index)!;
    return { path: nameOf(file), once };
  }

  /** Removes the spare file of a disk; others take its room. @throws VirtkeepError io_failed */
  async release(index: number): Promise<void> {
    const { file, once, handle } = await this.#spares.get(index)!;
    await once.settled();
    await file.close();
    await handle.undo(this.signal);
    this.#spares.delete(index);
    this.#fill();
  }

  /** Ends what runs, and waits for it. Harmless when repeated. */
  async close(): Promise<void> {
    this.#next = this.#options.disks.length;
    // who writes the archive goes on with the signal when all were asked for
    if (this.#spares.size > 0) this.#failing.abort(new VirtkeepError('canceled'));
    const shut = ({ file, once }: Spare) => once.settled().then(() => file.close());
    for (const spare of this.#spares.values()) await spare.then(shut).catch(() => {});
    this.#spares.clear();
  }

  #fill(): void {
    const { disks, limits } = this.#options;
    while (
      !this.signal.aborted &&
      this.#next < disks.length &&
      this.#running < limits.atOnce &&
      this.#spares.size < limits.spares
    ) {
      const index = this.#next;
      this.#next += 1;
      const spare = this.#convert(index);
      // whoever asks for it hears of its error
      spare.catch(() => {});
      this.#spares.set(index, spare);
    }
  }

  async #convert(index: number): Promise<Spare> {
    const { disks, directory, onProgress } = this.#options;
    const { content, sizeBytes } = disks[index]!;
    const path = sparePath(this.#context, directory, index, 'qcow2');
    this.#running += 1;
    let file: FileHandle | undefined;
    try {
      const made = await makeHeldFile(this.#context, path, false);
      file = made.file;
      const target = { path: nameOf(file), virtualSizeBytes: sizeBytes };
      await convertToQcow2(content, target, this.signal, fraction => onProgress(index, fraction));
      return { file, once: new ReadOnce(file), handle: made.handle };
    } catch (error) {
      await file?.close();
      const failure = hasKey(error, 'disk_full')
        ? new VirtkeepError('disk_full', { path })
        : fromIoError(error, 'converting', path);
      this.#failing.abort(failure);
      throw failure;
    } finally {
      this.#running -= 1;
      this.#fill();
    }
  }
}
