import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { abortReason, throwIfAborted } from '@virtkeep/shared/abort';
import { nameOf, rm } from '@virtkeep/shared/beneath';
import { fromIoError, hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { NO_PLAIN_FILE } from '../format/foreign-member.ts';
import { TAR_BLOCK } from '../format/layout.ts';
import { digestOf, type Manifest } from '../format/manifest.ts';
import { memberNames } from '../format/names.ts';
import type { Seal } from '../format/seal.ts';
import { decodeHeader } from '../format/tar-format.ts';
import type {
  ArchiveFormat,
  ArchiveMember,
  ArchiveProblem,
  ExtractOptions,
  VerifyOptions,
  VerifyResult,
} from '../format/types.ts';
import { openDirect } from '../system/direct-file.ts';
import { keepName } from '../system/publish.ts';
import type { BlockSource } from '../threads/block-source.ts';
import { cloneWhole } from '../threads/clone.ts';
import { Engine, type PumpJob } from '../threads/engine.ts';
import { endThatCounts } from '../write/left-tails.ts';
import { type Access, type Holding, type Inspection, inspect } from './inspect.ts';
import { framesOf } from './member-frames.ts';
import { salvage } from './salvage.ts';
import { extractStream, readStream } from './stream.ts';
import type { ArchiveFile } from './tar-source.ts';
import { verifyInspected } from './verify.ts';
import { mostWritten } from './written-bytes.ts';

/** Read at a time when a member is only looked through. */
const READ_THROUGH_BYTES = 4 * 1024 * 1024;
/** What an image's header can take. */
const HEAD_BYTES = 64 * 1024;
/** Largest member that readMember returns. */
const MAX_READ_BYTES = 16 * 1024 * 1024;

/**
 * Opens an archive: ours by reading its tail, a foreign tar by its headers, a foreign zstd file without seek table
 * by decompressing it once. With `salvage` one of ours that has lost its end or its newest manifest is opened as its
 * last readable manifest describes it (`damage` says what is wrong): older states can still be restored from it. So is one whose
 * last extension is to be taken back, though it may open whole; who brings a lock has put its old end back before.
 * @param options holding: how it is held until it is closed; default: by a shared lock
 * @throws VirtkeepError archive_damaged, archive_unsupported, io_failed, canceled; file_busy when another node writes it
 */
export async function openArchive(
  path: string,
  signal: AbortSignal,
  { salvage = false, holding = 'shared' }: { salvage?: boolean; holding?: Holding } = {},
): Promise<Archive> {
  const inspection =
    holding === 'shared' ? await inspectDurable(path, signal) : await inspect(path, signal, holding);
  const usable = inspection.fault === undefined || (salvage && inspection.salvaged !== undefined);
  if (usable) return new Archive(path, inspection);
  await inspection.file.close();
  throw inspection.fault!;
}

/**
 * Reads everything and names what is damaged. An archive that cannot even be opened is a result, too.
 * @throws VirtkeepError only io_failed, canceled, file_busy, and archive_unsupported for a file that is no archive
 */
export async function verifyArchive(path: string, options: VerifyOptions): Promise<VerifyResult> {
  const inspection = await inspectDurable(path, options.signal);
  const archive = new Archive(path, inspection);
  try {
    options.onOpened?.(archive);
    return await archive.verify(options);
  } finally {
    await archive.close();
  }
}

/**
 * What is sure to be on the disk: behind the end of an extension whose node died before that was so, some of its data may be missing.
 * Such an archive is read as it was before.
 */
async function inspectDurable(path: string, signal: AbortSignal): Promise<Inspection> {
  const inspection = await inspect(path, signal);
  try {
    return inspection.manifest === null ? inspection : await asItCounts(inspection, signal);
  } catch (error) {
    await inspection.file.close();
    throw error;
  }
}

async function asItCounts(inspection: Inspection, signal: AbortSignal): Promise<Inspection> {
  const { salvaged, ...unreadable } = inspection;
  const damaged = (reason: string) =>
    new VirtkeepError('archive_damaged', { path: inspection.file.path, reason });
  let end: number | null;
  try {
    end = await endThatCounts(inspection, signal);
  } catch (error) {
    if (!hasKey(error, 'archive_damaged', 'not_a_file', 'file_too_large')) throw error;
    // Whether the newest state counts cannot be known; the older ones do.
    if (inspection.fault !== undefined) return inspection;
    const fault = damaged(`whether an increment of it was cut off cannot be told: ${reasonOf(error)}`);
    return { ...inspection, fault, salvaged: { lost: [], unreadable: null, cut: null } };
  }
  if (end === null) return inspection;
  const counting = await salvage(inspection, signal, end);
  if (counting !== undefined) return counting;
  return {
    ...unreadable,
    fault: damaged('an increment of it was cut off, and what it held before cannot be read'),
  };
}

/** Random access to the content of a member. */
export interface MemberRange {
  sizeBytes: number;
  read(offset: number, lengthBytes: number): Promise<Buffer>;
}

/** The data of a member as they lie in the file. */
export interface MemberData {
  member: ArchiveMember;
  source: BlockSource;
  /** Of a compressed archive. */
  frames?: Float64Array;
  /** As its header tells. */
  modified?: Date;
}

/** An open archive. Its calls may overlap; those that move many bytes wait for each other. Close it when done. */
export class Archive {
  readonly path: string;
  readonly format: ArchiveFormat;
  readonly sizeBytes: number;
  /** Null for a tar that this product did not write. */
  readonly manifest: Manifest | null;
  /** In file order, the manifests included. */
  readonly members: readonly ArchiveMember[];
  /**
   * Of one of ours that was unpacked and packed again: what it describes is true of the members, and nobody vouches for it. It is
   * read by it, and nothing else: such an archive is neither extended nor converted.
   */
  readonly again: Manifest | null;
  /** A foreign zstd file that was only glanced at: nothing is known of what it holds. */
  readonly isUnread: boolean;
  /** What is wrong with a salvaged archive; null for a whole one. */
  readonly damage: string | null;
  /** Of the newest manifest; null of an archive that is not ours. */
  readonly seal: Seal | null;
  readonly #inspection: Inspection;
  readonly #file: ArchiveFile;
  readonly #access: Access;
  #engine: Engine | undefined;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(path: string, inspection: Inspection) {
    this.path = path;
    this.#inspection = inspection;
    this.#file = inspection.file;
    this.#access = inspection.access;
    this.format = inspection.access.kind === 'plain' ? 'tar' : 'tar.zst';
    this.sizeBytes = inspection.file.sizeBytes;
    this.manifest = inspection.manifest;
    this.again = inspection.again?.manifest ?? null;
    this.isUnread = inspection.access.kind === 'stream' && inspection.access.heads === undefined;
    this.members = inspection.members;
    this.seal = inspection.seal ?? null;
    this.damage = inspection.fault?.params.reason ?? null;
  }

  /**
   * A small member whole, at most `maxBytes` (default 16 MiB); compared with its digest where one is recorded.
   * @throws VirtkeepError member_not_found, archive_damaged, archive_unsupported when larger, hash_mismatch, io_failed, canceled
   */
  async readMember(name: string, signal: AbortSignal, maxBytes = MAX_READ_BYTES): Promise<Buffer> {
    throwIfAborted(signal);
    const member = this.#member(name);
    const { sizeBytes } = member;
    if (sizeBytes > Math.min(maxBytes, MAX_READ_BYTES))
      throw new VirtkeepError('archive_unsupported', {
        path: this.path,
        reason: `the member "${name}" of ${sizeBytes} bytes is too large to be read into memory`,
      });
    await this.#checkHeader(member);
    const bytes = await this.#bytes(member, signal);
    if (bytes.length !== sizeBytes) throw this.#damaged(`it ends inside the member "${name}"`);
    const expected = digestOf(member);
    if (expected !== null && createHash('sha256').update(bytes).digest('hex') !== expected)
      throw new VirtkeepError('hash_mismatch', { member: name, path: this.path });
    return bytes;
  }

  /**
   * The beginning of a member: what the header of an image can take.
   * @throws VirtkeepError member_not_found, archive_damaged, archive_unsupported, io_failed
   */
  async readHead(name: string): Promise<Buffer> {
    const member = this.#member(name);
    if (member.isSpecial) this.#unsupported(`the member "${name}" ${NO_PLAIN_FILE}`);
    await this.#checkHeader(member);
    const { dataOffset, sizeBytes } = member;
    const access = this.#access;
    if (access.kind === 'stream' && access.heads === undefined) this.#unsupported('it was not read yet');
    const source = access.kind === 'stream' ? access.heads! : access.source;
    const length = Math.min(sizeBytes, HEAD_BYTES);
    const head = await source.read(dataOffset, length);
    if (head.length !== length) throw this.#damaged(`it ends inside the member "${name}"`);
    return head;
  }

  /** Of a stream what was kept while it was read, where that is all; else it is read anew. */
  async #bytes({ dataOffset, sizeBytes }: ArchiveMember, signal: AbortSignal): Promise<Buffer> {
    const access = this.#access;
    if (access.kind !== 'stream') return await access.source.read(dataOffset, sizeBytes);
    const kept = await access.heads?.read(dataOffset, sizeBytes).catch(() => undefined);
    if (kept?.length === sizeBytes) return kept;
    return await readStream({ fd: this.#file.handle.fd, offset: dataOffset }, sizeBytes, this.path, signal);
  }

  /**
   * The manifest that a state was written with, listing the members that the file has now: the newest one describes the
   * file, each earlier one the VM at its time.
   * @throws VirtkeepError member_not_found, archive_damaged also when it does not agree with the newest one, io_failed
   */
  async manifestOfState(stateNumber: number): Promise<Manifest> {
    const { again } = this.#inspection;
    if (again !== undefined) return await again.manifestOfState(stateNumber, this.path);
    const newest = this.manifest;
    const manifests = this.#inspection.manifests;
    const name = memberNames.manifest(stateNumber);
    const place = this.#member(name);
    if (newest === null || manifests === undefined || newest.states.at(-1)!.number === stateNumber)
      return newest ?? this.#unsupported('it has no manifest of this service');
    const { manifest } = await manifests.read(place);
    const damaged = (reason: string) => this.#damaged(`${name} ${reason}`);
    if (manifest.backupId !== newest.backupId) throw damaged('is of another backup');
    if (manifest.states.at(-1)!.number !== stateNumber) throw damaged('describes another state');
    for (const [index, member] of manifest.members.entries()) {
      const now = newest.members[index];
      const same =
        now === member ||
        (now?.name === member.name &&
          now.dataOffset === member.dataOffset &&
          now.sizeBytes === member.sizeBytes &&
          now.kind === member.kind);
      if (!same) throw damaged(`lists "${member.name}", which the newest manifest does not have so`);
    }
    return { ...manifest, members: newest.members };
  }

  /**
   * A member for reading piece by piece: its size, and a function for ranges of at most `MAX_READ_BYTES`, shorter
   * only at the member's end.
   * @throws VirtkeepError member_not_found, archive_damaged, archive_unsupported (not a plain file, or a foreign zstd
   *   file without seek table), io_failed; the function archive_damaged, io_failed
   */
  async memberRange(name: string): Promise<MemberRange> {
    const member = this.#member(name);
    await this.#checkHeader(member);
    const access = this.#access;
    if (access.kind === 'stream')
      throw new VirtkeepError('archive_unsupported', {
        path: this.path,
        reason: 'it has no seek table, so that its members can only be extracted',
      });
    const { sizeBytes, dataOffset } = member;
    const read = async (offset: number, lengthBytes: number) => {
      const length = Math.max(0, Math.min(lengthBytes, MAX_READ_BYTES, sizeBytes - offset));
      const bytes = await access.source.read(dataOffset + offset, length);
      if (bytes.length !== length) throw this.#damaged(`it ends inside the member "${name}"`);
      return bytes;
    };
    return { sizeBytes, read };
  }

  /**
   * At most so many bytes are written when a member is extracted, as its header, the file's holes and its seek table tell:
   * what a manifest says of that may be wrong.
   * @throws VirtkeepError member_not_found, archive_damaged also when the header does not agree with the manifest, io_failed
   */
  async mostBytes(name: string): Promise<number> {
    const member = this.#member(name);
    await this.#checkHeader(member);
    return mostWritten(this.#file.handle.fd, this.#access, member);
  }

  /**
   * Reads a member through and counts the bytes that are written when it is extracted, for zeros that are no holes here.
   * @throws VirtkeepError member_not_found, archive_damaged, io_failed, canceled
   */
  async countBytes(name: string, signal: AbortSignal): Promise<number> {
    const member = this.#member(name);
    const pump = this.#pumpOf(member);
    if (pump === undefined) return member.sizeBytes;
    const paths = { source: this.path, target: this.path };
    const job = { ...pump, hash: false, output: false, paths };
    const { allocatedBytes } = await this.#exclusive(signal, () => this.#threads().pump(job, signal));
    return allocatedBytes;
  }

  /**
   * The SHA-256 of a member as it is now, whatever is recorded.
   * @throws VirtkeepError member_not_found, archive_damaged, archive_unsupported (a foreign zstd file without seek table), io_failed,
   *   canceled
   */
  async sha256Of(
    name: string,
    signal: AbortSignal,
    onProgress: (bytesDone: number) => void,
  ): Promise<string> {
    const member = this.#member(name);
    return this.#exclusive(signal, async () => {
      await this.#checkHeader(member);
      const sha256 = await this.#hashed(member, { hash: true, signal, onProgress });
      return (
        sha256 ?? this.#unsupported('it has no seek table, so that its members cannot be read one by one')
      );
    });
  }

  /**
   * Where a member's data lie, for a writer that copies them into another archive while this one is open.
   * @throws VirtkeepError member_not_found, archive_damaged, archive_unsupported when its frames are not ours, io_failed
   */
  async dataOf(name: string): Promise<MemberData> {
    const member = this.#member(name);
    const modified = await this.#checkHeader(member);
    const pump =
      this.#pumpOf(member) ?? this.#unsupported(`the frames of "${name}" are not those of this service`);
    const frames = 'frames' in pump.codec ? pump.codec.frames : undefined;
    return { member, source: pump.source, ...(frames && { frames }), ...(modified && { modified }) };
  }

  /**
   * Writes a member to a new file: reflinked where possible, sparse where it has zeros, durable on return. The file
   * is removed again on failure. @throws VirtkeepError file_exists, member_not_found, archive_damaged,
   * hash_mismatch (with checkHash), disk_full, io_failed, canceled
   */
  async extractMember(name: string, destPath: string, options: ExtractOptions): Promise<void> {
    const member = this.#member(name);
    await this.#exclusive(options.signal, async () => {
      await this.#checkHeader(member);
      const { mode, existing = false, mark } = options;
      const target = await openDirect(destPath, mode === undefined ? { existing } : { existing, mode });
      try {
        if (mark) await requireSame(target, mark, destPath);
        const sha256 = await this.#extractInto(target, member, destPath, options);
        if (options.checkHash === true && digestOf(member) !== null && sha256 !== digestOf(member))
          throw new VirtkeepError('hash_mismatch', { member: name, path: this.path });
        await target.close();
        await keepName(destPath);
      } catch (error) {
        await target.close();
        if (!existing) await rm(destPath, { force: true });
        throw error;
      }
    });
  }

  /**
   * Reads everything and reports damage.
   * @throws VirtkeepError only canceled and io_failed
   */
  async verify(options: VerifyOptions): Promise<VerifyResult> {
    return await this.#exclusive(options.signal, () =>
      verifyInspected(this.#inspection, options, (member, onProgress) =>
        this.#checkMember(member, options.signal, onProgress),
      ),
    );
  }

  async close(): Promise<void> {
    await this.#queue.catch(() => {});
    await this.#engine?.close();
    this.#engine = undefined;
    await this.#file.close();
  }

  #member(name: string): ArchiveMember {
    const found = this.members.find(member => member.name === name);
    if (found === undefined) throw new VirtkeepError('member_not_found', { path: this.path, member: name });
    return found;
  }

  #unsupported(reason: string): never {
    throw new VirtkeepError('archive_unsupported', { path: this.path, reason });
  }

  #damaged(reason: string): VirtkeepError {
    return new VirtkeepError('archive_damaged', { path: this.path, reason });
  }

  /** The block before the data must be the header of a plain file of this size, whatever the manifest says. */
  async #checkHeader({ name, dataOffset, sizeBytes }: ArchiveMember): Promise<Date | undefined> {
    if (this.#access.kind === 'stream') return undefined;
    const block = await this.#access.source.read(dataOffset - TAR_BLOCK, TAR_BLOCK);
    const header = block.length < TAR_BLOCK ? 'it ends before the member' : decodeHeader(block);
    if (typeof header === 'string') throw this.#damaged(`the member "${name}": ${header}`);
    if (this.manifest !== null && (!header.isFile || header.sizeBytes !== sizeBytes))
      throw this.#damaged(`the header of the member "${name}" does not agree with the manifest`);
    if (!header.isFile)
      throw new VirtkeepError('archive_unsupported', {
        path: this.path,
        reason: `the member "${name}" is not a plain file`,
      });
    return header.modified;
  }

  async #extractInto(
    target: FileHandle,
    member: ArchiveMember,
    destPath: string,
    options: ExtractOptions,
  ): Promise<string | null> {
    const paths = { source: this.path, target: destPath };
    const { signal, onProgress } = options;
    const { dataOffset, sizeBytes } = member;
    const hash = options.checkHash === true && digestOf(member) !== null;
    const pump = this.#pumpOf(member);
    if (pump === undefined) {
      const order = {
        fd: this.#file.handle.fd,
        offset: dataOffset,
        lengthBytes: sizeBytes,
        targetFd: target.fd,
      };
      await extractStream(order, paths, signal, onProgress);
      return hash ? await this.#hashCopy(target, member, paths, signal) : null;
    }
    if (this.#access.kind === 'plain' && (await this.#cloneInto(target, member, destPath, signal))) {
      if (!hash) return null;
      return await this.#hashCopy(target, member, paths, signal);
    }
    const engine = this.#threads();
    await engine.order({ op: 'open', fd: target.fd, position: 0, level: null }, paths, signal);
    const result = await engine.pump({ ...pump, hash, output: true, paths }, signal, onProgress);
    await engine.order({ op: 'end', sync: true }, paths, signal);
    return result.sha256;
  }

  /** Of what is going to be used, and not once more of what it was made of. */
  async #hashCopy(
    target: FileHandle,
    { sizeBytes }: ArchiveMember,
    paths: PumpJob['paths'],
    signal: AbortSignal,
  ): Promise<string | null> {
    // a descriptor without O_DIRECT, which the last bytes could not be read by
    const copy = await open(nameOf(target), 'r').catch((error: unknown) => {
      throw fromIoError(error, 'reading', paths.target);
    });
    try {
      const source = { fd: copy.fd, offset: 0, lengthBytes: sizeBytes };
      const job = { source, codec: { kind: 'store' } as const, hash: true, output: false, paths };
      return (await this.#threads().pump(job, signal)).sha256;
    } finally {
      await copy.close();
    }
  }

  /** Reflinks a member of a plain tar into a new file. @returns false when it must be copied */
  async #cloneInto(
    target: FileHandle,
    member: ArchiveMember,
    destPath: string,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { dataOffset, sizeBytes } = member;
    const from = { fd: this.#file.handle.fd, offset: dataOffset };
    const cloned = await cloneWhole(from, { fd: target.fd, offset: 0 }, sizeBytes, { signal });
    if (cloned === 0) return false;
    const tail = await this.#file.read(dataOffset + cloned, sizeBytes - cloned);
    try {
      // A descriptor without O_DIRECT, for less than 4096 bytes.
      const buffered = await open(nameOf(target), 'r+');
      await buffered.write(tail, 0, tail.length, cloned).finally(() => buffered.close());
      await target.datasync();
    } catch (error) {
      throw fromIoError(error, 'writing', destPath);
    }
    return true;
  }

  /** How the blocks of a member are read; undefined when only a stream from the beginning can. */
  #pumpOf({ dataOffset, sizeBytes }: ArchiveMember): Pick<PumpJob, 'source' | 'codec'> | undefined {
    if (this.#access.kind === 'stream') return undefined;
    const source = { fd: this.#file.handle.fd, offset: dataOffset, lengthBytes: sizeBytes };
    if (this.#access.kind === 'plain') return { source, codec: { kind: 'store' } };
    const frames = framesOf(this.#access.table, dataOffset, sizeBytes);
    return frames === undefined ? undefined : { source, codec: { kind: 'decompress', frames } };
  }

  /** Reads a member's data and says what is wrong with it. */
  async #checkMember(
    member: ArchiveMember,
    signal: AbortSignal,
    onProgress: (bytesDone: number) => void,
  ): Promise<ArchiveProblem | undefined> {
    const expected = digestOf(member);
    const sha256 = await this.#hashed(member, { hash: expected !== null, signal, onProgress });
    if (expected === null || sha256 === expected) return undefined;
    return {
      member: member.name,
      problem: 'hash_mismatch',
      text: 'its content does not have the recorded SHA-256',
    };
  }

  /** Reads a member's data. @returns its SHA-256, null when none is wanted */
  async #hashed(
    member: ArchiveMember,
    {
      hash,
      signal,
      onProgress,
    }: { hash: boolean; signal: AbortSignal; onProgress: (bytesDone: number) => void },
  ): Promise<string | null> {
    const pump = this.#pumpOf(member);
    if (pump === undefined) return this.#readThrough(member, signal, onProgress);
    const paths = { source: this.path, target: this.path };
    const job = { ...pump, hash, output: false, paths };
    return (await this.#threads().pump(job, signal, onProgress)).sha256;
  }

  /** Reads a member whose frames are not cut as ours are. @returns its SHA-256 */
  async #readThrough(
    { name, dataOffset, sizeBytes }: ArchiveMember,
    signal: AbortSignal,
    onProgress: (bytesDone: number) => void,
  ): Promise<string | null> {
    if (this.#access.kind === 'stream') return null;
    const hash = createHash('sha256');
    for (let done = 0; done < sizeBytes; ) {
      throwIfAborted(signal);
      const bytes = await this.#access.source.read(
        dataOffset + done,
        Math.min(READ_THROUGH_BYTES, sizeBytes - done),
      );
      if (bytes.length === 0) throw this.#damaged(`it ends inside the member "${name}"`);
      hash.update(bytes);
      done += bytes.length;
      onProgress(done);
    }
    return hash.digest('hex');
  }

  #threads(): Engine {
    this.#engine ??= new Engine(undefined);
    return this.#engine;
  }

  /** The threads do one thing at a time: waits for the one before. */
  async #exclusive<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const before = this.#queue;
    const mine = (async () => {
      await before.catch(() => {});
      if (signal.aborted) throw abortReason(signal);
      return await work();
    })();
    this.#queue = mine;
    return await mine;
  }
}

/** @throws VirtkeepError file_exists */
async function requireSame(
  file: FileHandle,
  mark: { inode: string; bornNs: string },
  path: string,
): Promise<void> {
  const { ino, birthtimeNs } = await file.stat({ bigint: true });
  if (String(ino) !== mark.inode || String(birthtimeNs) !== mark.bornNs)
    throw new VirtkeepError('file_exists', { path });
}
