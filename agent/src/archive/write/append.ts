import { createHash } from 'node:crypto';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { DATA_ALIGN, END_BYTES } from '../format/layout.ts';
import type { Manifest, ManifestPart, MemberRecord } from '../format/manifest.ts';
import { partOf } from '../format/manifest-chain.ts';
import { memberNames } from '../format/names.ts';
import { type Signing, sealOf } from '../format/seal.ts';
import { entriesOf } from '../format/seek-table.ts';
import type {
  AppenderOptions,
  ArchiveFormat,
  ArchiveMember,
  FinishedArchive,
  FinishOptions,
} from '../format/types.ts';
import { type Access, type Inspection, inspect } from '../read/inspect.ts';
import { hashedMember } from '../read/missing-hashes.ts';
import { borrowedLock, type FileLock, lockFile } from '../system/file-lock.ts';
import { encodeChained } from './chained-manifest.ts';
import { checkedLevel, checkSize, MemberWriter } from './member-writer.ts';
import { type Output, ZstdOutput } from './output.ts';
import { PlainOutput } from './plain-output.ts';
import { replaceHashes, writeHashes } from './sidecar.ts';
import { markDurable, saveTail, tailNames, undoAppend } from './tail.ts';

/** Where new members go: at the end-of-archive blocks, or at their frame. */
interface End {
  /** Offset in the file. */
  offset: number;
  sizeBytes: number;
  /** Seek table entries of the frames before, for a compressed archive. */
  entries: Buffer | null;
}

/**
 * Extends an archive in place, at the cost of what is added: the end-of-archive blocks (and the seek table) are
 * replaced, everything before stays untouched, the old manifest too.
 *
 * open → begin → add… → finish, then close, or abort. It holds the file exclusively, unless its caller does. Whoever calls
 * it has declared the effect `appended_archive` before `begin`, and removes the tail file once the extension is committed, never before: an effect
 * `file` that is due on success does that, also after a crash.
 */
export class ArchiveAppender extends MemberWriter {
  readonly path: string;
  readonly format: ArchiveFormat;
  /** Newest manifest before the extension. Not to be changed in place: entries that are those of what it continues are not compared. */
  readonly manifest: Manifest;
  /** Members before the extension, in file order, the manifests included. */
  readonly members: readonly ArchiveMember[];
  readonly #options: AppenderOptions;
  readonly #inspection: Inspection;
  readonly #end: End;
  readonly #level: number;
  readonly #lock: FileLock;
  #tailPath: string | undefined;
  #state: 'open' | 'begun' | 'finished' | 'closed' = 'open';
  /** Threads run and the file is open for writing. */
  #writing = false;

  private constructor(options: AppenderOptions, inspection: Inspection, facts: ArchiveFacts) {
    const { signal, onProgress, throttle } = options;
    const { tarOffset, members, hash, signing } = facts;
    const tailPath = () => this.#tailPath ?? options.path;
    super({
      file: options.path,
      get spare() {
        return tailNames.spare(tailPath());
      },
      hash,
      sign: signing?.sign,
      sameSigner: signing?.sameSigner || undefined,
      signal,
      throttle,
      members,
      tarOffset,
      maxFrames: options.maxFrames,
      ...(onProgress && { onProgress }),
    });
    this.path = options.path;
    this.format = inspection.access.kind === 'plain' ? 'tar' : 'tar.zst';
    this.manifest = facts.manifest;
    this.members = inspection.members;
    this.#options = options;
    this.#inspection = inspection;
    this.#end = facts.end;
    this.#level = facts.level;
    this.#lock = facts.lock;
  }

  /**
   * Reads an archive and changes nothing.
   * @throws VirtkeepError archive_damaged (a torn tail too), archive_unsupported (not ours), invalid_field (level),
   *   file_busy, io_failed, canceled
   */
  static async open(options: AppenderOptions): Promise<ArchiveAppender> {
    const level = checkedLevel(options.level);
    const lock = borrowedLock(options.lock) ?? (await lockFile(options.path, 'exclusive'));
    try {
      return await ArchiveAppender.#opened(options, { level, lock });
    } catch (error) {
      await lock.release();
      throw error;
    }
  }

  static async #opened(
    options: AppenderOptions,
    held: { level: number; lock: FileLock },
  ): Promise<ArchiveAppender> {
    const inspection = await inspect(options.path, options.signal, held.lock);
    try {
      if (inspection.fault !== undefined) throw inspection.fault;
      return new ArchiveAppender(options, inspection, { ...(await factsOf(options, inspection)), ...held });
    } catch (error) {
      await inspection.file.close();
      throw error;
    }
  }

  /**
   * Saves the old end and the hash file to `tailPath`, durably, before a byte is overwritten. Call it once, after the
   * effect was declared and before anything is added. Null: of a file that is nobody's yet and goes when this fails.
   * @throws VirtkeepError archive_damaged when the file was changed since, and what writing can raise
   */
  async begin(tailPath: string | null): Promise<void> {
    throwIfAborted(this.#options.signal);
    if (this.#state !== 'open') throw new Error('an extension begins once');
    const { offset, sizeBytes } = this.#end;
    const { handle } = this.#inspection.file;
    this.#tailPath = tailPath ?? undefined;
    this.#state = 'begun';
    // The threads start meanwhile; they write nothing before something is added.
    const output = this.#output();
    output.catch(() => {});
    try {
      if (tailPath !== null)
        await saveTail(handle, this.path, { offset: floorAlign(offset), sizeBytes }, tailPath);
    } catch (error) {
      await output.then(opened => opened.close()).catch(() => {});
      throw error;
    }
    this.attach(await output);
    this.#writing = true;
  }

  /**
   * Writes the new manifest and the end, makes all durable, then replaces the hash file and notes in the tail
   * file that all is. `options.manifest` gets the
   * records of all members of the file in order, the old manifests included. The tail file stays.
   * @throws VirtkeepError what writing can raise; abort() is to be called then
   */
  async finish(options: FinishOptions): Promise<FinishedArchive> {
    // The end cuts the file, and with a lost lock that would be a successor's end; while it was written the lock may have been lost, too.
    await this.#lock.confirm();
    const { manifest, sizeBytes } = await this.writeEnd(options);
    await this.#stop();
    await this.#lock.confirm();
    await checkSize(this.path, sizeBytes);
    throwIfAborted(this.#options.signal);
    const sha256Path = await this.#writeHashes();
    if (this.#tailPath !== undefined) await markDurable(this.#tailPath);
    this.#state = 'finished';
    await this.#lock.release();
    return { path: this.path, sizeBytes, sha256Path, manifest };
  }

  async #writeHashes(): Promise<string | null> {
    if (!this.records.some(({ sha256 }) => sha256 !== null)) return null;
    if (this.#tailPath === undefined) return writeHashes(this.path, this.records);
    return replaceHashes(this.path, this.records, tailNames.sidecar(this.#tailPath));
  }

  /**
   * Puts the old end back when the extension was begun and not finished, and removes the tail file; harmless after
   * finish and when repeated. @throws VirtkeepError io_failed, disk_full: the effect will be undone later
   */
  async abort(): Promise<void> {
    await this.#stop();
    const begun = this.#state === 'begun';
    try {
      if (begun && this.#tailPath !== undefined) await undoAppend(this.path, this.#tailPath, this.#lock);
    } finally {
      await this.#lock.release();
    }
    if (this.#state !== 'finished') this.#state = 'closed';
  }

  /** What came since an earlier manifest; a whole one while there are few states, and when that one is damaged. */
  protected override async encoded(manifest: Manifest): Promise<Buffer> {
    return encodeChained(manifest, number => this.#since(number, manifest));
  }

  /** Undefined when the manifest of that number cannot be read. */
  async #since(number: number, manifest: Manifest): Promise<ManifestPart | undefined> {
    const name = memberNames.manifest(number);
    const place = this.members.find(member => member.name === name);
    if (place === undefined) return undefined;
    try {
      const { manifest: base, sha256 } = await this.#inspection.manifests!.base(place);
      const { dataOffset, sizeBytes } = place;
      return partOf(manifest, base, { manifest: name, dataOffset, sizeBytes, sha256 });
    } catch (error) {
      if (!hasKey(error, 'archive_damaged', 'archive_unsupported')) throw error;
      return undefined;
    }
  }

  async #stop(): Promise<void> {
    if (this.#writing) {
      this.#writing = false;
      await this.output.close();
    }
    await this.#inspection.file.close();
  }

  async #output(): Promise<Output> {
    const { offset, entries } = this.#end;
    const output = { path: this.path, workers: this.#options.workers, signal: this.#options.signal };
    if (entries === null) return await PlainOutput.append(output, offset);
    const start = floorAlign(offset);
    const head = await this.#inspection.file.read(start, offset - start);
    return await ZstdOutput.append(output, this.#level, { offset, resume: { head, entries } });
  }
}

/** O_DIRECT output begins at a multiple of 4096. */
const floorAlign = (offset: number): number => offset - (offset % DATA_ALIGN);

interface ArchiveFacts {
  manifest: Manifest;
  end: End;
  members: MemberRecord[];
  tarOffset: number;
  hash: boolean;
  signing: Signing | undefined;
  level: number;
  lock: FileLock;
}

async function factsOf(
  options: AppenderOptions,
  inspection: Inspection,
): Promise<Omit<ArchiveFacts, 'level' | 'lock'>> {
  const { access, manifest, file } = inspection;
  const unsupported = (reason: string) =>
    new VirtkeepError('archive_unsupported', { path: options.path, reason });
  if (manifest === null) throw unsupported('it was not written by this service and cannot be extended');
  if (access.kind === 'stream') throw unsupported('it has no seek table and cannot be extended');
  const tarOffset = access.source.tarBytes - END_BYTES;
  const end = { ...(await endOf(access, inspection, unsupported)), sizeBytes: file.sizeBytes };
  const hash = options.hash === true || manifest.members.some(({ sha256 }) => sha256 !== null);
  const { name, sizeBytes, dataOffset } = inspection.members.at(-1)!;
  const bytes = await access.source.read(dataOffset, sizeBytes);
  const seal = inspection.seal ?? null;
  const signing = options.signer?.({ manifest, seal });
  // what is signed now is what was judged
  if (signing && sealOf(bytes, true).textSha256 !== seal?.textSha256)
    throw new VirtkeepError('archive_damaged', { path: options.path, reason: 'it was changed meanwhile' });
  const digest = createHash('sha256').update(bytes).digest('hex');
  const digests = hash ? { sha256: digest } : { sha256: null, ...(signing && { digest }) };
  const own: MemberRecord = { name, kind: 'manifest', sizeBytes, dataOffset, ...digests, formerPath: null };
  const records = options.hashes
    ? manifest.members.map(member => hashedMember(member, options.hashes!))
    : manifest.members;
  return { manifest, end, members: [...records, own], tarOffset, hash, signing };
}

async function endOf(
  access: Exclude<Access, { kind: 'stream' }>,
  { file }: Inspection,
  unsupported: (reason: string) => VirtkeepError,
): Promise<{ offset: number; entries: Buffer | null }> {
  if (access.kind === 'plain') return { offset: access.source.tarBytes - END_BYTES, entries: null };
  const { frameCount, fileOffsets, rawOffsets } = access.table;
  const last = frameCount - 1;
  if (rawOffsets[frameCount]! - rawOffsets[last]! !== END_BYTES)
    throw unsupported('its end-of-archive blocks are no frame of their own');
  const tableOffset = fileOffsets[frameCount]!;
  const table = await file.read(tableOffset, file.sizeBytes - tableOffset);
  const entries = entriesOf(table, last);
  if (entries === undefined) throw unsupported('its seek table has no checksums');
  return { offset: fileOffsets[last]!, entries };
}
