import { type FileHandle, open, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { errnoOf, fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { DEFAULT_LEVEL, MAX_LEVEL, MIN_LEVEL } from './codec.ts';
import { openDirect } from './direct-file.ts';
import { Engine } from './engine.ts';
import { END_BYTES, roundUp, TAR_BLOCK } from './layout.ts';
import {
  encodeManifest,
  MAX_MANIFEST_BYTES,
  type Manifest,
  type MemberRecord,
  referenceFault,
} from './manifest.ts';
import { checkName, type MemberKind, memberNames, partialPathOf, sha256PathOf } from './names.ts';
import { publishNew, syncDirectoryOf } from './publish.ts';
import { convertInto, createQcow2 } from './raw.ts';
import type { RunResult } from './sequencer.worker.ts';
import { dataOffsetFor, encodeHeader } from './tar-format.ts';
import type { FaultPaths } from './thread.ts';
import type { FinishedArchive, FinishOptions, MemberOptions, WriterOptions } from './types.ts';

/** Grain to which a qcow2 converted in place is rounded up. */
const QCOW2_GRAIN = 65_536;

/**
 * Writes one archive under a partial name beside its target and publishes it when it is complete.
 *
 * Calls are made one after another. After any error the archive is lost: call abort(), which also stops the threads.
 */
export class ArchiveWriter {
  readonly path: string;
  readonly partialPath: string;
  readonly #options: WriterOptions;
  readonly #file: FileHandle;
  readonly #engine: Engine;
  readonly #created = new Date(Math.floor(Date.now() / 1000) * 1000);
  readonly #members: MemberRecord[] = [];
  /** Bytes of the uncompressed tar so far; a multiple of 512. */
  #tarOffset = 0;
  #sourceBytesDone = 0;
  #closed = false;

  private constructor(options: WriterOptions, partialPath: string, file: FileHandle, engine: Engine) {
    this.#options = options;
    this.path = options.path;
    this.partialPath = partialPath;
    this.#file = file;
    this.#engine = engine;
  }

  /**
   * Starts an archive. The target is looked at first, so that hours are not spent on a name that is taken.
   * @throws VirtkeepError file_exists, invalid_field (level), canceled, and what writing can raise
   */
  static async create(options: WriterOptions): Promise<ArchiveWriter> {
    throwIfAborted(options.signal);
    const level = options.compression === null ? null : (options.compression.level ?? DEFAULT_LEVEL);
    if (level !== null && !(Number.isInteger(level) && level >= MIN_LEVEL && level <= MAX_LEVEL))
      throw new VirtkeepError('invalid_field', {
        field: 'level',
        reason: `must be ${MIN_LEVEL}..${MAX_LEVEL}`,
      });
    if (await exists(options.path)) throw new VirtkeepError('file_exists', { path: options.path });
    const partialPath = partialPathOf(options.path, options.backupId);
    const file = await openDirect(partialPath);
    const writer = new ArchiveWriter(options, partialPath, file, new Engine(options.workers));
    try {
      const order = { op: 'open', fd: file.fd, position: 0, level } as const;
      await writer.#engine.order(order, writer.#paths(''), options.signal);
    } catch (error) {
      await writer.abort();
      throw error;
    }
    return writer;
  }

  /**
   * Copies a file or block device as it is (a frozen layer, an image, a memory file). The source must not change.
   * @throws VirtkeepError io_failed (unreadable, became shorter), disk_full, canceled
   */
  async addFile(
    name: string,
    kind: MemberKind,
    srcPath: string,
    options: MemberOptions = {},
  ): Promise<MemberRecord> {
    this.#admit(name);
    const source = await open(srcPath, 'r').catch((error: unknown) => {
      throw fromIoError(error, 'opening', srcPath);
    });
    try {
      const size = { op: 'size', fd: source.fd } as const;
      const sizeBytes = await this.#engine.order<number>(size, this.#paths(srcPath), this.#options.signal);
      const dataOffset = await this.#putHeader(name, sizeBytes, true);
      const result = await this.#putData(source.fd, sizeBytes, srcPath);
      this.#tarOffset = dataOffset + roundUp(sizeBytes, TAR_BLOCK);
      return this.#record({
        name,
        kind,
        sizeBytes,
        dataOffset,
        ...result,
        formerPath: options.formerPath ?? null,
      });
    } finally {
      await source.close();
    }
  }

  /**
   * Adds small content from memory, at most 16 MiB.
   * @throws VirtkeepError disk_full, io_failed, canceled, bad_request when it is larger
   */
  async addBytes(
    name: string,
    kind: MemberKind,
    bytes: Uint8Array,
    options: MemberOptions = {},
  ): Promise<MemberRecord> {
    this.#admit(name);
    if (bytes.length > MAX_MANIFEST_BYTES)
      throw new VirtkeepError('bad_request', { reason: `the member ${name} is larger than 16 MiB` });
    const sizeBytes = bytes.length;
    const dataOffset = await this.#putHeader(name, sizeBytes, false);
    const sha256 = await this.#putBytes(bytes, this.#options.hash);
    await this.#putBytes(new Uint8Array(roundUp(sizeBytes, TAR_BLOCK) - sizeBytes), false);
    this.#tarOffset = dataOffset + roundUp(sizeBytes, TAR_BLOCK);
    this.#advance(sizeBytes);
    return this.#record({
      name,
      kind,
      sizeBytes,
      dataOffset,
      sha256,
      formerPath: options.formerPath ?? null,
    });
  }

  /**
   * Converts a raw file or block device to a qcow2 member of the same virtual size: straight into a plain tar,
   * through a temporary file beside it when compressing.
   * @throws VirtkeepError qemu_img_failed, and what addFile raises
   */
  async addRaw(
    name: string,
    srcPath: string,
    virtualSizeBytes: number,
    options: MemberOptions = {},
  ): Promise<MemberRecord> {
    this.#admit(name);
    const formerPath = options.formerPath ?? srcPath;
    const temporary = `${this.partialPath}.qcow2`;
    const { signal } = this.#options;
    try {
      await createQcow2(temporary, virtualSizeBytes, signal);
      if (this.#options.compression === null)
        return await this.#convertInPlace(name, { srcPath, empty: temporary, virtualSizeBytes, formerPath });
      await convertInto(srcPath, temporary, 0, signal, () => {});
      return await this.addFile(name, 'disk', temporary, { formerPath });
    } catch (error) {
      throw hasKey(error, 'disk_full') ? new VirtkeepError('disk_full', { path: this.partialPath }) : error;
    } finally {
      await rm(temporary, { force: true });
    }
  }

  /**
   * Writes the manifest, the end and the seek table, makes everything durable, checks the size, and gives the file
   * its name, never over an existing one. With hash, `<file>.sha256` is written first.
   * @throws VirtkeepError file_exists, and what writing can raise; abort() is to be called then
   */
  async finish(options: FinishOptions): Promise<FinishedArchive> {
    const name = memberNames.manifest(options.stateNumber);
    const manifest = options.manifest(structuredClone(this.#members));
    await this.addBytes(name, 'manifest', checkedManifest(manifest, this.#members));
    await this.#putBytes(new Uint8Array(END_BYTES), false);
    const sizeBytes = await this.#order<number>({ op: 'end' });
    const written = (await this.#file.stat()).size;
    if (written !== sizeBytes)
      throw new VirtkeepError('io_failed', {
        operation: 'writing',
        path: this.partialPath,
        reason: `the file has ${written} bytes, ${sizeBytes} were written`,
      });
    throwIfAborted(this.#options.signal);
    await this.#close();
    const sha256Path = await this.#writeHashes();
    try {
      await publishNew(this.partialPath, this.path);
    } catch (error) {
      if (sha256Path !== null) await rm(sha256Path, { force: true });
      throw error;
    }
    return { path: this.path, sizeBytes, sha256Path, manifest };
  }

  /** Stops the threads and removes the partial file; harmless after finish and when repeated. */
  async abort(): Promise<void> {
    await this.#close();
    for (const path of [this.partialPath, `${this.partialPath}.qcow2`]) await rm(path, { force: true });
  }

  async #close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#engine.close();
    await this.#file.close();
  }

  #admit(name: string): void {
    throwIfAborted(this.#options.signal);
    checkName(name);
    if (this.#members.some(member => member.name === name))
      throw new VirtkeepError('invalid_name', {
        value: name,
        reason: 'the archive has a member of this name',
      });
  }

  /** Writes a member's header. @returns where its data starts */
  async #putHeader(name: string, sizeBytes: number, aligned: boolean): Promise<number> {
    const dataOffset = dataOffsetFor(this.#tarOffset, name, aligned);
    await this.#putBytes(encodeHeader(name, sizeBytes, this.#created, dataOffset - this.#tarOffset), false);
    return dataOffset;
  }

  /** The data of a file with its padding: reflinked where possible, else through the pump. */
  async #putData(fd: number, sizeBytes: number, srcPath: string): Promise<RunResult> {
    const paths = this.#paths(srcPath);
    const { signal, hash, compression } = this.#options;
    const source = { fd, offset: 0, lengthBytes: sizeBytes };
    if (compression !== null) {
      const codec = { kind: 'compress', level: compression.level ?? DEFAULT_LEVEL } as const;
      const result = await this.#engine.pump(
        { source, codec, hash, output: true, paths },
        signal,
        this.#progress(),
      );
      this.#advance(sizeBytes);
      return result;
    }
    const order = { op: 'clone', fd, offset: 0, lengthBytes: sizeBytes } as const;
    const cloned = await this.#engine.order<boolean>(
      order,
      paths,
      signal,
      hash ? undefined : this.#progress(),
    );
    const codec = { kind: 'store' } as const;
    const result: RunResult =
      cloned && !hash
        ? { sha256: null, allocatedBytes: sizeBytes }
        : await this.#engine.pump({ source, codec, hash, output: !cloned, paths }, signal, this.#progress());
    await this.#putBytes(new Uint8Array(roundUp(sizeBytes, TAR_BLOCK) - sizeBytes), false);
    this.#advance(sizeBytes);
    return result;
  }

  /**
   * qemu-img writes at the member's data offset while the header still waits in the sequencer's buffer (it ends
   * where the data starts), so that the header can carry the final size.
   */
  async #convertInPlace(name: string, raw: RawSource): Promise<MemberRecord> {
    const { signal, hash } = this.#options;
    const { srcPath, virtualSizeBytes, formerPath } = raw;
    const dataOffset = dataOffsetFor(this.#tarOffset, name, true);
    await copyAt(raw.empty, this.partialPath, dataOffset);
    await convertInto(srcPath, this.partialPath, dataOffset, signal, fraction =>
      this.#options.onProgress?.(this.#sourceBytesDone + Math.floor(fraction * virtualSizeBytes)),
    );
    const sizeBytes = roundUp((await this.#file.stat()).size - dataOffset, QCOW2_GRAIN);
    await this.#putHeader(name, sizeBytes, true);
    await this.#order({ op: 'jump', position: dataOffset + sizeBytes });
    await this.#file.truncate(dataOffset + sizeBytes);
    this.#tarOffset = dataOffset + sizeBytes;
    const sha256 = hash ? await this.#hashBack(dataOffset, sizeBytes) : null;
    this.#advance(virtualSizeBytes);
    return this.#record({ name, kind: 'disk', sizeBytes, dataOffset, sha256, formerPath });
  }

  async #hashBack(offset: number, lengthBytes: number): Promise<string | null> {
    const file = await open(this.partialPath, 'r');
    try {
      const source = { fd: file.fd, offset, lengthBytes };
      const paths = this.#paths(this.partialPath);
      const job = { source, codec: { kind: 'store' }, hash: true, output: false, paths } as const;
      return (await this.#engine.pump(job, this.#options.signal)).sha256;
    } finally {
      await file.close();
    }
  }

  #putBytes(bytes: Uint8Array, hash: boolean): Promise<string | null> {
    return this.#order<string | null>({ op: 'bytes', bytes, hash });
  }

  #order<T>(order: Parameters<Engine['order']>[0]): Promise<T> {
    return this.#engine.order<T>(order, this.#paths(''), this.#options.signal);
  }

  #record(member: Omit<MemberRecord, 'allocatedBytes'> & { allocatedBytes?: number }): MemberRecord {
    this.#members.push(member as MemberRecord);
    return structuredClone(member as MemberRecord);
  }

  #progress(): (bytesDone: number) => void {
    return bytesDone => this.#options.onProgress?.(this.#sourceBytesDone + bytesDone);
  }

  #advance(bytes: number): void {
    this.#sourceBytesDone += bytes;
    this.#options.onProgress?.(this.#sourceBytesDone);
  }

  #paths(source: string): FaultPaths {
    return { source, target: this.partialPath };
  }

  /**
   * The sidecar: one line a member, so that it can be checked with `sha256sum -c` in the directory where the tar was
   * unpacked, and so that an increment adds lines instead of hashing the whole file again.
   */
  async #writeHashes(): Promise<string | null> {
    if (!this.#options.hash) return null;
    const path = sha256PathOf(this.path);
    const lines = this.#members.map(({ sha256, name }) => `${sha256}  ${name}\n`).join('');
    try {
      await writeFile(path, lines, { mode: 0o600, flush: true });
    } catch (error) {
      throw fromIoError(error, 'writing', path);
    }
    await syncDirectoryOf(path);
    return path;
  }
}

interface RawSource {
  srcPath: string;
  /** A qcow2 of the right size without content. */
  empty: string;
  virtualSizeBytes: number;
  formerPath: string;
}

/** The caller's manifest must be valid and list exactly what was written. */
function checkedManifest(manifest: Manifest, members: readonly MemberRecord[]): Buffer {
  const internal = (cause: unknown) => new VirtkeepError('internal', { request_id: '-' }, { cause });
  const same =
    manifest.members.length === members.length &&
    manifest.members.every((member, index) => member.name === members[index]!.name);
  const fault = same ? referenceFault(manifest) : 'the manifest does not list the members that were written';
  if (fault !== undefined) throw internal(new Error(fault));
  try {
    return encodeManifest(manifest);
  } catch (error) {
    throw internal(error);
  }
}

/** Copies a small file into another at an offset. */
async function copyAt(from: string, to: string, offset: number): Promise<void> {
  try {
    const bytes = await readFile(from);
    const file = await open(to, 'r+');
    await file.write(bytes, 0, bytes.length, offset).finally(() => file.close());
  } catch (error) {
    throw fromIoError(error, 'writing', to);
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw fromIoError(error, 'looking at', path);
  }
}
