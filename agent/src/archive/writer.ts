import { createHash } from 'node:crypto';
import { open, rm, stat, truncate } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { DEFAULT_LEVEL, MAX_LEVEL, MIN_LEVEL } from './codec.ts';
import { END_BYTES, roundUp, TAR_BLOCK } from './layout.ts';
import { checkedManifest, MAX_MANIFEST_BYTES, type MemberRecord } from './manifest.ts';
import { checkName, type MemberKind, memberNames, partialPathOf } from './names.ts';
import { type Output, ZstdOutput } from './output.ts';
import { PlainOutput } from './plain-output.ts';
import { publishNew } from './publish.ts';
import { convertInto, copyAt, createQcow2 } from './raw.ts';
import { writeHashes } from './sidecar.ts';
import { sizeOf } from './syscalls.ts';
import { dataOffsetFor, encodeHeader } from './tar-format.ts';
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
  readonly #output: Output;
  readonly #created = new Date(Math.floor(Date.now() / 1000) * 1000);
  readonly #members: MemberRecord[] = [];
  /** Bytes of the uncompressed tar so far; a multiple of 512. */
  #tarOffset = 0;
  #sourceBytesDone = 0;
  #closed = false;

  private constructor(options: WriterOptions, partialPath: string, output: Output) {
    this.#options = options;
    this.path = options.path;
    this.partialPath = partialPath;
    this.#output = output;
  }

  /**
   * Starts an archive. The target is looked at first, so that hours are not spent on a name that is taken.
   * @throws VirtkeepError file_exists, invalid_field (level), canceled, and what writing can raise
   */
  static async create(options: WriterOptions): Promise<ArchiveWriter> {
    throwIfAborted(options.signal);
    const level = levelOf(options);
    if (await exists(options.path)) throw new VirtkeepError('file_exists', { path: options.path });
    const partialPath = partialPathOf(options.path, options.backupId);
    const output = { path: partialPath, workers: options.workers, signal: options.signal };
    try {
      const opened =
        level === null ? await PlainOutput.create(output) : await ZstdOutput.create(output, level);
      return new ArchiveWriter(options, partialPath, opened);
    } catch (error) {
      if (!hasKey(error, 'file_exists')) await rm(partialPath, { force: true });
      throw error;
    }
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
    const start = this.#sourceBytesDone;
    const record = await this.#copy(
      { name, kind, srcPath, formerPath: options.formerPath ?? null },
      bytesDone => this.#report(start + bytesDone),
    );
    this.#report(start + record.sizeBytes);
    return record;
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
    await this.#output.bytes(Buffer.concat([bytes], roundUp(sizeBytes, TAR_BLOCK)));
    this.#report(this.#sourceBytesDone + sizeBytes);
    const sha256 = this.#options.hash ? createHash('sha256').update(bytes).digest('hex') : null;
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
    const empty = `${this.partialPath}.qcow2`;
    const { signal } = this.#options;
    try {
      await createQcow2(empty, virtualSizeBytes, signal);
      if (this.#output instanceof PlainOutput)
        return await this.#convertInPlace(
          name,
          { srcPath, empty, virtualSizeBytes, formerPath },
          this.#output,
        );
      return await this.#convertAside(name, { srcPath, empty, virtualSizeBytes, formerPath });
    } catch (error) {
      throw hasKey(error, 'disk_full') ? new VirtkeepError('disk_full', { path: this.partialPath }) : error;
    } finally {
      await rm(empty, { force: true });
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
    await this.#output.bytes(new Uint8Array(END_BYTES));
    const sizeBytes = await this.#output.end();
    await this.#close();
    const written = (await stat(this.partialPath)).size;
    if (written !== sizeBytes) throw wrongSize(this.partialPath, written, sizeBytes);
    throwIfAborted(this.#options.signal);
    const sha256Path = this.#options.hash ? await writeHashes(this.path, this.#members) : null;
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
    await this.#output.close();
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
    await this.#output.bytes(encodeHeader(name, sizeBytes, this.#created, dataOffset - this.#tarOffset));
    return dataOffset;
  }

  /** Header, data and record of a file. */
  async #copy(
    from: { name: string; kind: MemberKind; srcPath: string; formerPath: string | null },
    onProgress: (bytesDone: number) => void,
  ): Promise<MemberRecord> {
    const { name, kind, srcPath, formerPath } = from;
    const source = await open(srcPath, 'r').catch((error: unknown) => {
      throw fromIoError(error, 'opening', srcPath);
    });
    try {
      const sizeBytes = sizeOf(source.fd);
      const dataOffset = await this.#putHeader(name, sizeBytes, true);
      const blocks = { fd: source.fd, offset: 0, lengthBytes: sizeBytes };
      const result = await this.#output.data(blocks, srcPath, this.#options.hash, onProgress);
      return this.#record({ name, kind, sizeBytes, dataOffset, ...result, formerPath });
    } finally {
      await source.close();
    }
  }

  /** Into a temporary file, which is then compressed; each counts as half of the disk's bytes. */
  async #convertAside(name: string, raw: RawSource): Promise<MemberRecord> {
    const { srcPath, empty, virtualSizeBytes, formerPath } = raw;
    const start = this.#sourceBytesDone;
    const half = virtualSizeBytes / 2;
    await convertInto(srcPath, empty, 0, this.#options.signal, fraction =>
      this.#report(start + fraction * half),
    );
    const { size } = await stat(empty);
    const record = await this.#copy({ name, kind: 'disk', srcPath: empty, formerPath }, bytesDone =>
      this.#report(start + half + (bytesDone / size) * half),
    );
    this.#report(start + virtualSizeBytes);
    return record;
  }

  /** qemu-img writes at the member's data offset; then its size is known and the header is written before it. */
  async #convertInPlace(name: string, raw: RawSource, output: PlainOutput): Promise<MemberRecord> {
    const { signal, hash } = this.#options;
    const { srcPath, virtualSizeBytes, formerPath } = raw;
    const dataOffset = dataOffsetFor(this.#tarOffset, name, true);
    await copyAt(raw.empty, this.partialPath, dataOffset);
    const start = this.#sourceBytesDone;
    await convertInto(srcPath, this.partialPath, dataOffset, signal, fraction =>
      this.#report(start + fraction * virtualSizeBytes),
    );
    const sizeBytes = roundUp((await stat(this.partialPath)).size - dataOffset, QCOW2_GRAIN);
    await truncate(this.partialPath, dataOffset + sizeBytes);
    await this.#putHeader(name, sizeBytes, true);
    const sha256 = hash ? await output.hashAhead(sizeBytes) : null;
    output.skip(sizeBytes);
    this.#report(start + virtualSizeBytes);
    return this.#record({ name, kind: 'disk', sizeBytes, dataOffset, sha256, formerPath });
  }

  #record(member: Omit<MemberRecord, 'allocatedBytes'> & { allocatedBytes?: number }): MemberRecord {
    const record = member as MemberRecord;
    this.#members.push(record);
    this.#tarOffset = record.dataOffset + roundUp(record.sizeBytes, TAR_BLOCK);
    return structuredClone(record);
  }

  #report(sourceBytesDone: number): void {
    this.#sourceBytesDone = Math.floor(sourceBytesDone);
    this.#options.onProgress?.(this.#sourceBytesDone);
  }
}

function levelOf({ compression }: WriterOptions): number | null {
  if (compression === null) return null;
  const level = compression.level ?? DEFAULT_LEVEL;
  if (Number.isInteger(level) && level >= MIN_LEVEL && level <= MAX_LEVEL) return level;
  throw new VirtkeepError('invalid_field', { field: 'level', reason: `must be ${MIN_LEVEL}..${MAX_LEVEL}` });
}

const wrongSize = (path: string, found: number, expected: number) =>
  new VirtkeepError('io_failed', {
    operation: 'writing',
    path,
    reason: `the file has ${found} bytes, ${expected} were written`,
  });

interface RawSource {
  srcPath: string;
  /** A qcow2 of the right size without content. */
  empty: string;
  virtualSizeBytes: number;
  formerPath: string;
}
