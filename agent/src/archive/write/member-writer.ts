import { createHash } from 'node:crypto';
import { open, stat, truncate } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { lstat, nameOf, rm } from '@virtkeep/shared/beneath';
import { fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { openFresh } from '@virtkeep/shared/foreign-file';
import { MAX_MANIFEST_BYTES } from '../format/bounds.ts';
import { requireReadable } from '../format/growth.ts';
import { END_BYTES, roundUp, TAR_BLOCK } from '../format/layout.ts';
import {
  checkManifest,
  digestOf,
  encodeManifest,
  type Manifest,
  type MemberRecord,
} from '../format/manifest.ts';
import type { ManifestPlace } from '../format/manifest-chain.ts';
import { checkName, isContent, type MemberKind, memberNames } from '../format/names.ts';
import { type SignManifest, withSignature } from '../format/seal.ts';
import { dataOffsetFor, encodeHeader } from '../format/tar-format.ts';
import type { FinishOptions, MemberOptions, Throttle } from '../format/types.ts';
import type { MemberData } from '../read/reader.ts';
import { sizeOfAside } from '../system/syscalls.ts';
import { DEFAULT_LEVEL, MAX_LEVEL, MIN_LEVEL } from '../threads/codec.ts';
import type { Output } from './output.ts';
import { PlainOutput } from './plain-output.ts';
import { convertInto, copyAt, createQcow2, type RawContent } from './raw.ts';
import {
  convertSideBySide,
  MOST_SIDE_BY_SIDE_BYTES,
  QCOW2_GRAIN,
  type RawDisk,
  windowsOf,
} from './side-by-side.ts';

/** A manifest and where it stands. */
export interface WrittenManifest {
  manifest: Manifest;
  place: ManifestPlace;
}

/** What a writer of members needs to know. */
export interface MemberTarget {
  /** The file that is written. */
  file: string;
  /** A name beside it for a raw disk under conversion. */
  spare: string;
  /** SHA-256 of every member. */
  hash: boolean;
  /** Signs the manifest. */
  sign?: SignManifest | undefined;
  /** As in the manifest. */
  sameSigner?: true | undefined;
  throttle?: Throttle | undefined;
  signal: AbortSignal;
  onProgress?: (bytesDone: number) => void;
  /** Members that are in the file already, in order. */
  members: MemberRecord[];
  /** Bytes of the uncompressed tar so far; a multiple of 512. */
  tarOffset: number;
  /** Most frames, when it is compressed; default what readers take. */
  maxFrames?: number | undefined;
}

/**
 * Adds members to a new or an existing archive.
 *
 * Calls are made one after another. After any error what was added is lost: the subclass's abort() ends it.
 */
export abstract class MemberWriter {
  readonly #target: MemberTarget;
  readonly #created = new Date(Math.floor(Date.now() / 1000) * 1000);
  #output: Output | undefined;
  #sourceBytesDone = 0;

  protected constructor(target: MemberTarget) {
    this.#target = target;
  }

  /**
   * Copies a file or block device as it is (a frozen layer, an image, a memory file), or a part of it. The source must not change.
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
      { name, kind, srcPath, formerPath: options.formerPath ?? null, throttle: this.#target.throttle },
      options,
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
    const { modified, hashedLater } = options;
    const dataOffset = await this.#putHeader({ name, kind, sizeBytes, modified }, false);
    await this.output.bytes(Buffer.concat([bytes], roundUp(sizeBytes, TAR_BLOCK)));
    this.#report(this.#sourceBytesDone + sizeBytes);
    const digest = this.#isHashed(kind) ? createHash('sha256').update(bytes).digest('hex') : null;
    const formerPath = options.formerPath ?? null;
    const digests = this.#digests(digest, hashedLater);
    return this.#record({ name, kind, sizeBytes, dataOffset, ...digests, formerPath });
  }

  /**
   * Copies a member of another archive, shared where the file system can, compressed frames as they are; what is recorded of it
   * must be true.
   * @throws VirtkeepError hash_mismatch, and what addFile raises
   */
  protected async addData(data: MemberData, srcPath: string): Promise<MemberRecord> {
    const { member, modified } = data;
    const { name, kind, sizeBytes, formerPath } = member;
    this.#admit(name);
    const start = this.#sourceBytesDone;
    const recorded = digestOf(member);
    const dataOffset = await this.#putHeader({ name, kind, sizeBytes, modified }, true);
    const hash = recorded !== null || this.#isHashed(kind);
    const onProgress = (bytesDone: number) => this.#report(start + bytesDone);
    const job = {
      source: data.source,
      srcPath,
      hash,
      onProgress,
      ...(data.frames && { frames: data.frames }),
    };
    const { sha256, ...result } = await this.output.data(job);
    if (recorded !== null && sha256 !== recorded)
      throw new VirtkeepError('hash_mismatch', { member: name, path: srcPath });
    this.#report(start + sizeBytes);
    const isLater = recorded === null || member.hashedLater === true;
    const digests = this.#digests(this.#isHashed(kind) ? sha256 : null, isLater);
    return this.#record({ name, kind, sizeBytes, dataOffset, ...result, ...digests, formerPath });
  }

  /**
   * Converts a raw file or block device, or what a foreign image holds, to a qcow2 member of the same virtual size: straight into a plain tar,
   * through a temporary file beside it when compressing.
   * @throws VirtkeepError qemu_img_failed, and what addFile raises
   */
  async addRaw(
    name: string,
    content: RawContent,
    virtualSizeBytes: number,
    options: MemberOptions = {},
  ): Promise<MemberRecord> {
    this.#admit(name);
    const { formerPath = 'path' in content ? content.path : null } = options;
    return await this.#withSpare(async empty => {
      await createQcow2(empty, virtualSizeBytes, this.#target.signal);
      const raw = { content, empty, virtualSizeBytes, formerPath };
      return this.output instanceof PlainOutput
        ? await this.#convertInPlace(name, raw, this.output)
        : await this.#convertAside(name, raw);
    });
  }

  /**
   * Whether `addRaws` takes these disks: where the archive is new and a plain tar, on a file system that closes gaps (ext4, XFS), nothing
   * limits how fast it is written, and no hash is wanted, which is computed on the way where a disk is copied.
   * @throws VirtkeepError io_failed, disk_full
   */
  async canAddRaws(disks: readonly RawDisk[]): Promise<boolean> {
    const { throttle, hash } = this.#target;
    if (!(this.output instanceof PlainOutput) || throttle !== undefined || hash) return false;
    const mostBytes = disks.reduce((sum, disk) => sum + disk.mostBytes, this.#target.tarOffset);
    return mostBytes <= MOST_SIDE_BY_SIDE_BYTES && (await this.output.canCloseGaps());
  }

  /**
   * `addRaw` of several disks at the same time, each where it stays: none takes more room than it has in the archive, and none is copied.
   * Only where `canAddRaws`.
   * @param onProgress told of each disk, by its index
   * @throws VirtkeepError qemu_img_failed, and what addFile raises
   */
  async addRaws(
    disks: readonly RawDisk[],
    { atOnce, onProgress }: { atOnce: number; onProgress: (index: number, fraction: number) => void },
  ): Promise<void> {
    const output = this.output as PlainOutput;
    for (const { name } of disks) this.#admit(name);
    const windows = windowsOf(disks, this.#target.tarOffset);
    const { signal } = this.#target;
    const report = (index: number, fraction: number) => {
      output.hint();
      onProgress(index, fraction);
    };
    const sizes = await this.#withSpare(empty =>
      convertSideBySide(disks, windows, { path: output.name, empty, atOnce, signal, onProgress: report }),
    );
    // by so much all that follows has moved
    let closedBytes = 0;
    for (const [index, { name, virtualSizeBytes, formerPath }] of disks.entries()) {
      // two of them may have one name
      this.#admit(name);
      const gap = windows[index]!.offset - closedBytes - dataOffsetFor(this.#target.tarOffset, name, true);
      if (gap > 0) await output.closeGap(gap);
      closedBytes += gap;
      await this.#addConverted(output, { name, sizeBytes: sizes[index]!, formerPath });
      this.#report(this.#sourceBytesDone + virtualSizeBytes);
    }
    await output.cut();
  }

  /** Gives the place to write to; before it nothing can be added. */
  protected attach(output: Output): void {
    this.#output = output;
  }

  protected get output(): Output {
    if (this.#output === undefined) throw new Error('nothing was begun');
    return this.#output;
  }

  /** All members of the file in order. */
  protected get records(): readonly MemberRecord[] {
    return this.#target.members;
  }

  /** The manifest as it is written. */
  protected async encoded(manifest: Manifest): Promise<Buffer> {
    return encodeManifest(manifest);
  }

  /** Writes the manifest and what follows the last member, makes all durable. */
  protected async writeEnd(options: FinishOptions): Promise<{ manifest: Manifest; sizeBytes: number }> {
    const { manifest } = await this.writeManifest(options);
    await this.output.bytes(new Uint8Array(END_BYTES));
    return { manifest, sizeBytes: await this.output.end() };
  }

  /** Writes the manifest of a state behind its members. */
  protected async writeManifest(options: FinishOptions): Promise<WrittenManifest> {
    const { members } = this.#target;
    const name = memberNames.manifest(options.stateNumber);
    const { sign, sameSigner } = this.#target;
    const { sameSigner: _, ...described } = options.manifest([...members]);
    const manifest: Manifest = { ...described, ...(sign && sameSigner && { sameSigner }) };
    checkManifest(manifest, members);
    const bytes = await this.encoded(manifest);
    const signed = sign ? withSignature(bytes, sign) : bytes;
    const { dataOffset, sizeBytes } = await this.addBytes(name, 'manifest', signed);
    const sha256 = createHash('sha256').update(signed).digest('hex');
    return { manifest, place: { manifest: name, dataOffset, sizeBytes, sha256 } };
  }

  /** What defines the VM is always hashed in a signed archive; the bytes of its disks where that was asked for. */
  #isHashed(kind: MemberKind): boolean {
    return this.#target.hash || (this.#target.sign !== undefined && !isContent(kind));
  }

  #digests(sha256: string | null, isLater = false): Pick<MemberRecord, 'sha256' | 'digest' | 'hashedLater'> {
    if (sha256 === null) return { sha256 };
    if (this.#target.hash) return { sha256, ...(isLater && { hashedLater: true }) };
    return { sha256: null, digest: sha256 };
  }

  #admit(name: string): void {
    throwIfAborted(this.#target.signal);
    checkName(name);
    if (this.#target.members.some(member => member.name === name))
      throw new VirtkeepError('invalid_name', {
        value: name,
        reason: 'the archive has a member of this name',
      });
  }

  /** Writes a member's header. @returns where its data starts @throws VirtkeepError archive_too_large */
  async #putHeader(
    { name, kind, sizeBytes, modified = this.#created }: HeaderOf,
    aligned: boolean,
  ): Promise<number> {
    const dataOffset = dataOffsetFor(this.#target.tarOffset, name, aligned);
    const { file, members, maxFrames } = this.#target;
    const size = { bytes: dataOffset + sizeBytes, members: members.length + 1 };
    // room for manifests is kept beyond the bound
    if (kind !== 'manifest' && !(this.output instanceof PlainOutput)) requireReadable(file, size, maxFrames);
    await this.output.bytes(encodeHeader(name, sizeBytes, modified, dataOffset - this.#target.tarOffset));
    return dataOffset;
  }

  /** Header, data and record of a file. */
  async #copy(
    from: CopiedFile,
    { modified, hashedLater, part, onCopied }: MemberOptions,
    onProgress: (bytesDone: number) => void,
  ): Promise<MemberRecord> {
    const { name, kind, srcPath, formerPath, throttle } = from;
    // who hears of it may give back what lies before the part, too
    if (part && onCopied)
      throw new Error('only of a whole file is told how much of it is not needed any more');
    const source = await open(srcPath, 'r').catch((error: unknown) => {
      throw fromIoError(error, 'opening', srcPath);
    });
    try {
      const { offset, lengthBytes: sizeBytes } = part ?? {
        offset: 0,
        lengthBytes: await sizeOfAside(source.fd),
      };
      const dataOffset = await this.#putHeader({ name, kind, sizeBytes, modified }, true);
      const blocks = { fd: source.fd, offset, lengthBytes: sizeBytes };
      const job = { source: blocks, srcPath, hash: this.#isHashed(kind), onProgress, onCopied, throttle };
      const { sha256, ...result } = await this.output.data(job);
      const digests = this.#digests(sha256, hashedLater);
      return this.#record({ name, kind, sizeBytes, dataOffset, ...result, ...digests, formerPath });
    } finally {
      await source.close();
    }
  }

  #convert(
    content: RawContent,
    target: { path: string; offset: number },
    onProgress: (fraction: number) => void,
  ): Promise<void> {
    const { signal, throttle } = this.#target;
    const convert = (bytesPerSecond: number) =>
      convertInto(content, { ...target, bytesPerSecond }, signal, onProgress);
    return throttle ? throttle.atFixedRate(convert) : convert(0);
  }

  /** Into a temporary file, which is then compressed; each counts as half of the disk's bytes. */
  async #convertAside(name: string, raw: RawSource): Promise<MemberRecord> {
    const { content, empty, virtualSizeBytes, formerPath } = raw;
    const start = this.#sourceBytesDone;
    const half = virtualSizeBytes / 2;
    await this.#convert(content, { path: empty, offset: 0 }, fraction =>
      this.#report(start + fraction * half),
    );
    const { size } = await stat(empty);
    const record = await this.#copy({ name, kind: 'disk', srcPath: empty, formerPath }, {}, bytesDone =>
      this.#report(start + half + (bytesDone / size) * half),
    );
    this.#report(start + virtualSizeBytes);
    return record;
  }

  /** qemu-img writes at the member's data offset; then its size is known and the header is written before it. */
  async #convertInPlace(name: string, raw: RawSource, output: PlainOutput): Promise<MemberRecord> {
    const { content, virtualSizeBytes, formerPath } = raw;
    const dataOffset = dataOffsetFor(this.#target.tarOffset, name, true);
    await copyAt(raw.empty, output.name, dataOffset);
    const start = this.#sourceBytesDone;
    await this.#convert(content, { path: output.name, offset: dataOffset }, fraction => {
      output.hint();
      this.#report(start + fraction * virtualSizeBytes);
    });
    const sizeBytes = roundUp((await stat(output.name)).size - dataOffset, QCOW2_GRAIN);
    await truncate(output.name, dataOffset + sizeBytes);
    const record = await this.#addConverted(output, { name, sizeBytes, formerPath });
    this.#report(start + virtualSizeBytes);
    return record;
  }

  /** Header and record of an image that stands where its data belong. */
  async #addConverted(
    output: PlainOutput,
    { name, sizeBytes, formerPath }: Pick<MemberRecord, 'name' | 'sizeBytes' | 'formerPath'>,
  ): Promise<MemberRecord> {
    const dataOffset = await this.#putHeader({ name, kind: 'disk', sizeBytes }, true);
    const sha256 = this.#target.hash ? await output.hashAhead(sizeBytes) : null;
    output.skip(sizeBytes);
    return this.#record({ name, kind: 'disk', sizeBytes, dataOffset, sha256, formerPath });
  }

  /** Work with an empty file beside the archive, which goes then. What qemu-img writes goes into this very file, whatever its name means meanwhile. */
  async #withSpare<T>(work: (path: string) => Promise<T>): Promise<T> {
    const { spare } = this.#target;
    const file = await openFresh(spare).catch((error: unknown) => {
      throw fromIoError(error, 'creating', spare);
    });
    try {
      return await work(nameOf(file));
    } catch (error) {
      throw hasKey(error, 'disk_full') ? new VirtkeepError('disk_full', { path: this.#target.file }) : error;
    } finally {
      await file.close();
      await rm(spare, { force: true });
    }
  }

  #record(member: Omit<MemberRecord, 'allocatedBytes'> & { allocatedBytes?: number }): MemberRecord {
    const record = member as MemberRecord;
    this.#target.members.push(record);
    this.#target.tarOffset = record.dataOffset + roundUp(record.sizeBytes, TAR_BLOCK);
    return structuredClone(record);
  }

  #report(sourceBytesDone: number): void {
    this.#sourceBytesDone = Math.floor(sourceBytesDone);
    this.#target.onProgress?.(this.#sourceBytesDone);
  }
}

/** The level of a compressed archive. @throws VirtkeepError invalid_field */
export function checkedLevel(level = DEFAULT_LEVEL): number {
  if (Number.isInteger(level) && level >= MIN_LEVEL && level <= MAX_LEVEL) return level;
  throw new VirtkeepError('invalid_field', { field: 'level', reason: `must be ${MIN_LEVEL}..${MAX_LEVEL}` });
}

/** Looks whether all that was written is in the file. @throws VirtkeepError io_failed */
export async function checkSize(path: string, expected: number): Promise<void> {
  const found = (await lstat(path)).size;
  if (found === expected) return;
  const reason = `the file has ${found} bytes, ${expected} were written`;
  throw new VirtkeepError('io_failed', { operation: 'writing', path, reason });
}

interface CopiedFile {
  name: string;
  kind: MemberKind;
  srcPath: string;
  formerPath: string | null;
  throttle?: Throttle | undefined;
}

/** What a member's header tells. */
interface HeaderOf {
  name: string;
  kind: MemberKind;
  sizeBytes: number;
  modified?: Date | undefined;
}

interface RawSource {
  content: RawContent;
  /** A qcow2 of the right size without content. */
  empty: string;
  virtualSizeBytes: number;
  formerPath: string | null;
}
