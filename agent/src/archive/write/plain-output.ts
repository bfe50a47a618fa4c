import { read } from 'node:fs';
import { type FileHandle, statfs } from 'node:fs/promises';
import { promisify } from 'node:util';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { nameOf, open } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { readAt, writeAt } from '@virtkeep/shared/file-bytes';
import { openForeign } from '@virtkeep/shared/foreign-file';
import { DATA_ALIGN, roundUp, TAR_BLOCK } from '../format/layout.ts';
import { openDirect } from '../system/direct-file.ts';
import { collapseRange, startWriting } from '../system/syscalls.ts';
import type { Codec } from '../threads/block.worker.ts';
import type { BlockSource } from '../threads/block-source.ts';
import { cloneWhole } from '../threads/clone.ts';
import { Engine } from '../threads/engine.ts';
import type { RunResult } from '../threads/sequencer.worker.ts';
import type { FaultPaths } from '../threads/thread.ts';
import { copyHere, HERE_BYTES } from './copy-here.ts';
import { copying, type DataJob, type Output, type OutputOptions } from './output.ts';

const readAsync = promisify(read);

/** Between two hints that the file is to be written out. */
const HINT_MS = 100;

/** `f_type` of statfs(2): ext4, XFS. They move what is behind a gap without copying it, and forget what they had cached. */
const CLOSES_GAPS: ReadonlySet<number> = new Set([0xef53, 0x58465342]);
/** What is compared behind a gap that was closed: the place of a member's header, and the first cluster's beginning. */
const SEEN_BYTES = 2 * DATA_ALIGN;

/**
 * Small content is written here by offset, data is reflinked, and only where that is impossible do threads start
 * and copy: a reflinked archive costs milliseconds, less than a thread's start.
 */
export class PlainOutput implements Output {
  readonly #options: OutputOptions;
  readonly #file: FileHandle;
  #engine: Engine | undefined;
  /** A second descriptor of the file with O_DIRECT, once something had to be copied. */
  #direct: FileHandle | undefined;
  #position: number;
  #hintedAt = Number.NEGATIVE_INFINITY;
  #hinting: Promise<void> | undefined;

  private constructor(options: OutputOptions, file: FileHandle, position: number) {
    this.#options = options;
    this.#file = file;
    this.#position = position;
  }

  static async create(options: OutputOptions): Promise<PlainOutput> {
    try {
      return new PlainOutput(options, await open(options.path, 'wx+', 0o600), 0);
    } catch (error) {
      if (errnoOf(error) === 'EEXIST') throw new VirtkeepError('file_exists', { path: options.path });
      throw fromIoError(error, 'creating', options.path);
    }
  }

  /** Goes on in an existing tar where its end-of-archive blocks stand; they are zeros, so holes over them are right. */
  static async append(options: OutputOptions, position: number): Promise<PlainOutput> {
    try {
      return new PlainOutput(options, await openForeign(options.path, 'update'), position);
    } catch (error) {
      throw fromIoError(error, 'opening', options.path);
    }
  }

  async bytes(bytes: Uint8Array): Promise<void> {
    throwIfAborted(this.#options.signal);
    try {
      await writeAt(this.#file, bytes, this.#position);
    } catch (error) {
      throw fromIoError(error, 'writing', this.#options.path);
    }
    this.#position += bytes.length;
  }

  async data(job: DataJob): Promise<RunResult> {
    const { source } = job;
    const start = this.#position;
    const paths = { source: job.srcPath, target: this.#options.path };
    const cloned = job.frames === undefined ? await this.#cloned(job) : 0;
    const result = cloned > 0 ? await this.#afterClone(job, cloned, paths) : await this.#copied(job, paths);
    this.#position = start + roundUp(source.lengthBytes, TAR_BLOCK);
    return result;
  }

  #cloned({ source, hash, onProgress }: DataJob): Promise<number> {
    const to = { fd: this.#file.fd, offset: this.#position };
    const { signal } = this.#options;
    return cloneWhole(source, to, source.lengthBytes, {
      signal,
      onProgress: hash ? undefined : onProgress,
    });
  }

  /** A path of the file for other programs, whatever its own name means by now. */
  get name(): string {
    return nameOf(this.#file);
  }

  /**
   * What another program writes into the file goes to the disk while it computes the rest: the kernel by itself begins when a tenth of the
   * memory waits, and `end` would wait for all of it. Called as often as there is news.
   */
  hint(): void {
    if (this.#hinting !== undefined || performance.now() - this.#hintedAt < HINT_MS) return;
    this.#hintedAt = performance.now();
    this.#hinting = startWriting(this.#file.fd).finally(() => {
      this.#hinting = undefined;
    });
  }

  /** For content that another program has written at the present end. */
  skip(lengthBytes: number): void {
    this.#position += lengthBytes;
  }

  /** Cuts off what another program has written behind the present end: what follows is written there, and appends by its size. */
  async cut(): Promise<void> {
    try {
      await this.#file.truncate(this.#position);
    } catch (error) {
      throw fromIoError(error, 'writing', this.#options.path);
    }
  }

  /**
   * Whether `closeGap` is possible here, and moves nothing. Others do it, too: a CIFS mount has the server copy what is behind the gap, and
   * went on telling what had stood there.
   */
  async canCloseGaps(): Promise<boolean> {
    const start = roundUp(this.#position, DATA_ALIGN);
    try {
      const { type } = await statfs(this.name);
      const { size } = await this.#file.stat();
      // an archive that is appended to has its end there
      if (!CLOSES_GAPS.has(type) || size > this.#position) return false;
    } catch (error) {
      throw fromIoError(error, 'reading', this.#options.path);
    }
    try {
      await this.#file.truncate(start + 2 * DATA_ALIGN);
      return await collapseRange(this.#file.fd, start, DATA_ALIGN);
    } catch (error) {
      throw fromIoError(error, 'writing', this.#options.path);
    } finally {
      await this.cut();
    }
  }

  /**
   * Takes out so many bytes at the present end: what another program has written behind them follows at once. Both are multiples of 4096.
   * @throws VirtkeepError io_failed, disk_full
   */
  async closeGap(lengthBytes: number): Promise<void> {
    let isClosed: boolean;
    try {
      const behind = await readAt(this.#file, this.#position + lengthBytes, SEEN_BYTES);
      isClosed = await collapseRange(this.#file.fd, this.#position, lengthBytes);
      // it writes first what waits: what is wrong with that is the reason
      if (!isClosed) await this.#file.datasync();
      isClosed &&= behind.equals(await readAt(this.#file, this.#position, SEEN_BYTES));
    } catch (error) {
      throw fromIoError(error, 'writing', this.#options.path);
    }
    if (isClosed) return;
    const reason = 'the file system does not close a gap in it';
    throw new VirtkeepError('io_failed', { operation: 'writing', path: this.#options.path, reason });
  }

  /** SHA-256 of what was written at the present end by another program. */
  async hashAhead(lengthBytes: number): Promise<string | null> {
    const source = { fd: this.#file.fd, offset: this.#position, lengthBytes };
    const paths = { source: this.#options.path, target: this.#options.path };
    return (await this.#hashed({ source, onProgress: () => {} }, paths)).sha256;
  }

  async end(): Promise<number> {
    throwIfAborted(this.#options.signal);
    await this.cut();
    try {
      await this.#file.datasync();
    } catch (error) {
      throw fromIoError(error, 'writing', this.#options.path);
    }
    return this.#position;
  }

  async close(): Promise<void> {
    // it has the descriptor's number, which others may get
    await this.#hinting;
    await this.#engine?.close();
    await this.#direct?.close();
    await this.#file.close();
  }

  /** Copies the last bytes that no whole 4096 held, and hashes the source when asked. */
  async #afterClone(
    { source, hash, onProgress, throttle }: DataJob,
    cloned: number,
    paths: FaultPaths,
  ): Promise<RunResult> {
    const rest = source.lengthBytes - cloned;
    const start = this.#position;
    if (rest > 0) await this.#tail(source, cloned, rest, paths.source);
    this.#position = start;
    const sha256 = hash ? (await this.#hashed({ source, onProgress, throttle }, paths)).sha256 : null;
    return { sha256, allocatedBytes: source.lengthBytes };
  }

  async #tail(source: BlockSource, cloned: number, rest: number, srcPath: string): Promise<void> {
    const tail = Buffer.alloc(rest);
    const { bytesRead } = await readAsync(source.fd, tail, 0, rest, source.offset + cloned).catch(
      (error: unknown) => {
        throw fromIoError(error, 'reading', srcPath);
      },
    );
    if (bytesRead < rest)
      throw new VirtkeepError('io_failed', {
        operation: 'reading',
        path: srcPath,
        reason: 'it ended before its length',
      });
    this.#position += cloned;
    await this.bytes(tail);
  }

  #copied(data: DataJob, paths: FaultPaths): Promise<RunResult> {
    return copying(data, onProgress => this.#copy({ ...data, onProgress }, paths));
  }

  async #copy(
    { source, frames, hash, onProgress, throttle }: DataJob,
    paths: FaultPaths,
  ): Promise<RunResult> {
    const { path, signal } = this.#options;
    this.#direct ??= await openDirect(path, { existing: true });
    if (frames === undefined && !hash && source.lengthBytes <= HERE_BYTES && this.#engine === undefined) {
      const to = { fd: this.#direct.fd, offset: this.#position };
      const allocatedBytes = await copyHere(source, to, paths, { signal, onProgress, throttle });
      return { sha256: null, allocatedBytes };
    }
    const engine = this.#threads();
    await engine.order(
      { op: 'open', fd: this.#direct.fd, position: this.#position, level: null },
      paths,
      signal,
    );
    const codec: Codec = frames === undefined ? { kind: 'store' } : { kind: 'decompress', frames };
    const job = { source, codec, hash, output: true, paths, throttle };
    const result = await engine.pump(job, signal, onProgress);
    await engine.order({ op: 'end', sync: false }, paths, signal);
    return result;
  }

  #hashed(
    { source, onProgress, throttle }: Pick<DataJob, 'source' | 'onProgress' | 'throttle'>,
    paths: FaultPaths,
  ): Promise<RunResult> {
    const job = { source, codec: { kind: 'store' }, hash: true, output: false, paths, throttle } as const;
    return this.#threads().pump(job, this.#options.signal, onProgress);
  }

  #threads(): Engine {
    this.#engine ??= new Engine(this.#options.workers);
    return this.#engine;
  }
}
