import type { FileHandle } from 'node:fs/promises';
import { DATA_ALIGN } from '../format/layout.ts';
import type { Throttle } from '../format/types.ts';
import { openDirect } from '../system/direct-file.ts';
import type { Codec } from '../threads/block.worker.ts';
import type { BlockSource } from '../threads/block-source.ts';
import { Engine } from '../threads/engine.ts';
import type { Resume, RunResult } from '../threads/sequencer.worker.ts';

/** The data of one member. */
export interface DataJob {
  source: BlockSource;
  /** The source's path, for errors. */
  srcPath: string;
  /** Offset and size of each block's frame, when the source is a compressed archive: what is compressed again keeps them. */
  frames?: Float64Array;
  hash: boolean;
  onProgress: (bytesDone: number) => void;
  /** As that of `MemberOptions`. */
  onCopied?: ((bytesDone: number) => void) | undefined;
  throttle?: Throttle | undefined;
}

/**
 * Does a job that copies all bytes, and tells of them: in order, each after it was read, maybe before it is written. Nobody needs them again,
 * since an archive that could not be written is lost as a whole.
 */
export async function copying<T>(
  { source, onProgress, onCopied }: Pick<DataJob, 'source' | 'onProgress' | 'onCopied'>,
  copy: (onProgress: (bytesDone: number) => void) => Promise<T>,
): Promise<T> {
  const result = await copy(bytesDone => {
    onCopied?.(bytesDone);
    onProgress(bytesDone);
  });
  onCopied?.(source.lengthBytes);
  return result;
}

/**
 * Where a writer puts the bytes of the tar, in order. Big data comes from files and never passes the main thread.
 * All methods throw what writing can raise: disk_full, io_failed, canceled; the output is lost then.
 */
export interface Output {
  /** Small content at the present end, whole multiples of 512. */
  bytes(bytes: Uint8Array): Promise<void>;
  /** A file's bytes and the padding to 512, at the present end, which is a multiple of 4096. */
  data(job: DataJob): Promise<RunResult>;
  /** Writes what follows the last member, makes all durable. @returns the file's size */
  end(): Promise<number>;
  /** Stops threads and closes files. */
  close(): Promise<void>;
}

export interface OutputOptions {
  path: string;
  workers: number | undefined;
  signal: AbortSignal;
}

/** The place in a compressed file where new frames go. */
export interface ZstdEnd {
  /** Offset in the file. */
  offset: number;
  resume: Resume;
}

/** All through the threads: the frames and the seek table are theirs. */
export class ZstdOutput implements Output {
  readonly #engine: Engine;
  readonly #file: FileHandle;
  readonly #level: number;
  readonly #options: OutputOptions;

  private constructor(options: OutputOptions, level: number, file: FileHandle, engine: Engine) {
    this.#options = options;
    this.#level = level;
    this.#file = file;
    this.#engine = engine;
  }

  static create(options: OutputOptions, level: number): Promise<ZstdOutput> {
    return ZstdOutput.#start(options, level, { existing: false, offset: 0 });
  }

  /** Goes on in an existing file behind its last frame of a member. */
  static append(options: OutputOptions, level: number, end: ZstdEnd): Promise<ZstdOutput> {
    return ZstdOutput.#start(options, level, { ...end, existing: true });
  }

  static async #start(
    options: OutputOptions,
    level: number,
    { existing, offset, resume }: { existing: boolean; offset: number; resume?: Resume },
  ): Promise<ZstdOutput> {
    const file = await openDirect(options.path, { existing });
    const output = new ZstdOutput(options, level, file, new Engine(options.workers));
    const position = offset - (offset % DATA_ALIGN);
    try {
      await output.#order({ op: 'open', fd: file.fd, position, level, ...(resume && { resume }) });
    } catch (error) {
      await output.close();
      throw error;
    }
    return output;
  }

  async bytes(bytes: Uint8Array): Promise<void> {
    await this.#order({ op: 'bytes', bytes });
  }

  data(data: DataJob): Promise<RunResult> {
    const { source, srcPath, frames, hash, throttle } = data;
    const codec: Codec = frames ? { kind: 'carry', frames } : { kind: 'compress', level: this.#level };
    const paths = { source: srcPath, target: this.#options.path };
    const job = { source, codec, hash, output: true, paths, throttle };
    return copying(data, onProgress => this.#engine.pump(job, this.#options.signal, onProgress));
  }

  async end(): Promise<number> {
    return (await this.#order({ op: 'end', sync: true })) as number;
  }

  async close(): Promise<void> {
    await this.#engine.close();
    await this.#file.close();
  }

  #order(order: Parameters<Engine['order']>[0]): Promise<unknown> {
    const paths = { source: this.#options.path, target: this.#options.path };
    return this.#engine.order(order, paths, this.#options.signal);
  }
}
