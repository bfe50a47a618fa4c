import { createHash } from 'node:crypto';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { rm } from '@virtkeep/shared/beneath';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { MAX_MANIFEST_BYTES } from '../format/bounds.ts';
import { requireReadable, tarSizeOf } from '../format/growth.ts';
import { DATA_ALIGN, END_BYTES, roundUp, TAR_BLOCK } from '../format/layout.ts';
import { digestOf, encodeManifest, type Manifest, type MemberRecord } from '../format/manifest.ts';
import { needsDigest, partialPathOf, partialPathsOf } from '../format/names.ts';
import { type SignManifest, withSignature } from '../format/seal.ts';
import { decodeHeader, encodeHeader } from '../format/tar-format.ts';
import type { ArchiveMember, FinishedArchive, Sealed, WriterOptions } from '../format/types.ts';
import { type Inspection, inspect } from '../read/inspect.ts';
import { framesOf } from '../read/member-frames.ts';
import type { TarSource } from '../read/tar-source.ts';
import { borrowedLock, type FileLock, lockFile } from '../system/file-lock.ts';
import { checkSize } from './member-writer.ts';
import type { Output } from './output.ts';
import { writeHashes } from './sidecar.ts';
import { createOutput, publishWithHashes } from './writer.ts';

/** Members up to this size go through memory, like the XML and manifests they mostly are. */
const SMALL_BYTES = 64 * 1024;
/** Most that stands before a member's data: its header, a pax header with a name or a comment. */
const MAX_HEADER_BYTES = 64 * 1024;

export interface ConvertOptions
  extends Pick<WriterOptions, 'compression' | 'maxFrames' | 'workers' | 'signal'> {
  /** The archive to be read; it stays. */
  from: string;
  /** An exclusive lock of it, which stays the caller's; undefined: one is taken until the end. */
  lock?: FileLock;
  /** Where the new one is published; must not exist. */
  path: string;
  /** Decides for the old one whether the new one's newest manifest is written anew and signed; else it stays what it is. */
  sign?: ((archive: Sealed) => SignManifest | undefined) | undefined;
  /** SHA-256 of members that have none, too ({@link ArchiveConverter.hashes}); what is written says nothing of them. */
  hash?: boolean;
  /** Bytes of the members done. */
  onProgress?: (bytesDone: number) => void;
}

/**
 * Writes the other form of an archive: the same tar content, byte for byte, plain or compressed. So every member,
 * manifest and offset stays what it is, and the hash file, too. Hashes and frame checksums of the old file are
 * compared on the way: damage is not carried over.
 *
 * write → publish, or abort, as with a writer.
 */
export class ArchiveConverter {
  readonly path: string;
  readonly partialPath: string;
  readonly backupId: string;
  /** Bytes of the members, and how many of them are not holes. */
  readonly sizeBytes: number;
  readonly allocatedBytes: number;
  /** How many states it has. */
  readonly states: number;
  readonly #options: ConvertOptions;
  readonly #inspection: Inspection;
  readonly #source: TarSource;
  readonly #lock: FileLock;
  readonly #sign: SignManifest | undefined;
  #output: Output | undefined;
  #writtenBytes = 0;
  /** Of members that had none, by name, when the new archive is signed or they are asked for. */
  readonly #digests = new Map<string, string>();
  #signed: { manifest: Manifest; sha256: string } | undefined;

  private constructor(options: ConvertOptions, { inspection, source, backupId, lock }: Opened) {
    this.path = options.path;
    this.partialPath = partialPathOf(options.path, backupId);
    this.backupId = backupId;
    this.#options = options;
    this.#inspection = inspection;
    this.#source = source;
    this.#lock = lock;
    const { manifest, seal = null } = inspection;
    this.#sign = options.sign?.({ manifest, seal });
    const members = inspection.manifest?.members ?? [];
    this.states = inspection.manifest?.states.length ?? 0;
    this.sizeBytes = inspection.members.reduce((sum, member) => sum + member.sizeBytes, 0);
    this.allocatedBytes = members.reduce(
      (sum, member) => sum + (member.allocatedBytes ?? member.sizeBytes),
      0,
    );
  }

  /**
   * Opens the old archive and keeps everybody else from it.
   * @throws VirtkeepError archive_damaged, archive_unsupported (not ours), archive_too_large, file_busy, io_failed, canceled
   */
  static async open(options: ConvertOptions): Promise<ArchiveConverter> {
    const lock = borrowedLock(options.lock) ?? (await lockFile(options.from, 'exclusive'));
    try {
      return new ArchiveConverter(options, { ...(await openedArchive(options, lock)), lock });
    } catch (error) {
      await lock.release();
      throw error;
    }
  }

  /**
   * Copies all members into the partial file and makes it durable.
   * @throws VirtkeepError file_exists, invalid_field (level), archive_damaged, hash_mismatch, disk_full, io_failed,
   *   canceled; call abort() then
   */
  async write(): Promise<void> {
    const output = await createOutput(this.#options, this.partialPath);
    this.#output = output;
    let done = 0;
    let end = 0;
    const { members } = this.#inspection;
    const sign = this.#sign;
    for (const member of sign ? members.slice(0, -1) : members) {
      await this.#copy(member, end, output, bytes => this.#options.onProgress?.(done + bytes));
      done += member.sizeBytes;
      end = member.dataOffset + roundUp(member.sizeBytes, TAR_BLOCK);
      this.#options.onProgress?.(done);
    }
    if (sign) await this.#writeSigned(sign, members.at(-1)!, end, output);
    await output.bytes(new Uint8Array(END_BYTES));
    this.#writtenBytes = await output.end();
    await output.close();
    await checkSize(this.partialPath, this.#writtenBytes);
  }

  /** Gives the new archive its name, with its hash file. @throws VirtkeepError file_exists, io_failed */
  async publish(): Promise<FinishedArchive> {
    throwIfAborted(this.#options.signal);
    const manifest = this.#signed?.manifest ?? this.#inspection.manifest!;
    const hashed = manifest.members.some(({ sha256 }) => sha256 !== null);
    if (hashed) await writeHashes(this.partialPath, await this.#records());
    const sha256Path = await publishWithHashes(this.partialPath, this.path, hashed);
    return { path: this.path, sizeBytes: this.#writtenBytes, sha256Path, manifest };
  }

  /** Stops the threads and removes the partial file; harmless after publish and when repeated. */
  async abort(): Promise<void> {
    const output = this.#output;
    this.#output = undefined;
    await output?.close();
    await this.#inspection.file.close();
    await this.#lock.release();
    for (const path of partialPathsOf(this.partialPath)) await rm(path, { force: true });
  }

  /** Header blocks, data and padding of one member. */
  async #copy(
    member: ArchiveMember,
    start: number,
    output: Output,
    onProgress: (bytesDone: number) => void,
  ): Promise<void> {
    throwIfAborted(this.#options.signal);
    const { dataOffset, sizeBytes } = member;
    await output.bytes(await this.#header(member, start));
    if (sizeBytes === 0 && !this.#lacksDigest(member)) return;
    if (sizeBytes <= SMALL_BYTES || dataOffset % DATA_ALIGN !== 0)
      await output.bytes(await this.#smallData(member));
    else await this.#bigData(member, output, onProgress);
  }

  /** The newest manifest with the digests that it lacked: whole, since an earlier one that it continues lacks them, too. */
  async #writeSigned(sign: SignManifest, own: ArchiveMember, start: number, output: Output): Promise<void> {
    const former = this.#inspection.manifest!;
    const members = former.members.map(member => {
      const digest = this.#digests.get(member.name);
      return digest === undefined ? member : { ...member, digest };
    });
    // whoever has it signed did not make what it says, and has seen little of it: it does not become his own
    const { sameSigner: _, ...described } = former;
    const manifest: Manifest = { ...described, members, adopted: true };
    const bytes = withSignature(encodeManifest(manifest), sign);
    if (bytes.length > MAX_MANIFEST_BYTES)
      throw new VirtkeepError('archive_unsupported', {
        path: this.#options.from,
        reason: 'its description is too long to be signed as a whole',
      });
    const now = new Date(Math.floor(Date.now() / 1000) * 1000);
    await output.bytes(encodeHeader(own.name, bytes.length, now, own.dataOffset - start));
    await output.bytes(Buffer.concat([bytes], roundUp(bytes.length, TAR_BLOCK)));
    this.#signed = { manifest, sha256: createHash('sha256').update(bytes).digest('hex') };
  }

  /** Found while writing, of members that had none, by name. */
  get hashes(): ReadonlyMap<string, string> {
    return this.#digests;
  }

  /** What a signature stands for has a digest. */
  #lacksDigest(member: ArchiveMember): boolean {
    const isWanted = this.#options.hash === true || (this.#sign !== undefined && needsDigest(member));
    return isWanted && digestOf(member) === null;
  }

  #needsDigest(member: ArchiveMember): boolean {
    return digestOf(member) !== null || this.#lacksDigest(member);
  }

  /** What is copied must be what was recorded; what lacked a digest that is signed has one from now on. */
  #settle(member: ArchiveMember, digest: string): void {
    const expected = digestOf(member);
    if (expected === null) this.#digests.set(member.name, digest);
    else if (digest !== expected)
      throw new VirtkeepError('hash_mismatch', { member: member.name, path: this.#options.from });
  }

  async #header(member: ArchiveMember, start: number): Promise<Buffer> {
    const { name, dataOffset, sizeBytes } = member;
    if (dataOffset - start > MAX_HEADER_BYTES) throw this.#damaged(`the header of "${name}" is too long`);
    const bytes = await this.#source.read(start, dataOffset - start);
    const header = decodeHeader(bytes.subarray(-TAR_BLOCK));
    if (typeof header === 'string') throw this.#damaged(`the member "${name}": ${header}`);
    if (!header.isFile || header.sizeBytes !== sizeBytes)
      throw this.#damaged(`the header of the member "${name}" does not agree with the manifest`);
    return bytes;
  }

  async #smallData(member: ArchiveMember): Promise<Buffer> {
    const { name, dataOffset, sizeBytes } = member;
    if (sizeBytes > MAX_MANIFEST_BYTES)
      throw new VirtkeepError('archive_unsupported', {
        path: this.#options.from,
        reason: `the data of "${name}" does not start at a multiple of ${DATA_ALIGN}`,
      });
    const bytes = await this.#source.read(dataOffset, roundUp(sizeBytes, TAR_BLOCK));
    if (this.#needsDigest(member)) {
      const content = bytes.subarray(0, sizeBytes);
      this.#settle(member, createHash('sha256').update(content).digest('hex'));
    }
    return bytes;
  }

  async #bigData(
    member: ArchiveMember,
    output: Output,
    onProgress: (bytesDone: number) => void,
  ): Promise<void> {
    const { name, dataOffset, sizeBytes } = member;
    const { access, file } = this.#inspection;
    const source = { fd: file.handle.fd, offset: dataOffset, lengthBytes: sizeBytes };
    const frames = access.kind === 'seekable' ? framesOf(access.table, dataOffset, sizeBytes) : undefined;
    if (access.kind === 'seekable' && frames === undefined)
      throw new VirtkeepError('archive_unsupported', {
        path: this.#options.from,
        reason: `the frames of "${name}" are not those of this service`,
      });
    const hash = this.#needsDigest(member);
    const job = { source, srcPath: this.#options.from, hash, onProgress, ...(frames && { frames }) };
    const result = await output.data(job);
    if (hash) this.#settle(member, result.sha256!);
  }

  /** The members for the hash file, the newest manifest included. */
  async #records(): Promise<MemberRecord[]> {
    const own = this.#inspection.members.at(-1)!;
    if (this.#signed) return [...this.#signed.manifest.members, { ...own, sha256: this.#signed.sha256 }];
    const bytes = await this.#source.read(own.dataOffset, own.sizeBytes);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    return [...this.#inspection.manifest!.members, { ...own, sha256 }];
  }

  #damaged(reason: string): VirtkeepError {
    return new VirtkeepError('archive_damaged', { path: this.#options.from, reason });
  }
}

interface Opened {
  inspection: Inspection;
  source: TarSource;
  backupId: string;
  lock: FileLock;
}

async function openedArchive(options: ConvertOptions, lock: FileLock): Promise<Omit<Opened, 'lock'>> {
  const inspection = await inspect(options.from, options.signal, lock);
  const { access, manifest, fault } = inspection;
  if (fault === undefined && manifest !== null && access.kind !== 'stream') {
    try {
      if (options.compression) requireReadable(options.path, tarSizeOf(manifest.members), options.maxFrames);
      return { inspection, source: access.source, backupId: manifest.backupId };
    } catch (error) {
      await inspection.file.close();
      throw error;
    }
  }
  await inspection.file.close();
  const reason = 'it was not written by this service and cannot be converted';
  throw fault ?? new VirtkeepError('archive_unsupported', { path: options.from, reason });
}
