import type { FileHandle } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { openForeign } from '@virtkeep/shared/foreign-file';
import { MAX_FRAMES, MAX_MANIFEST_BYTES, mostUnpacked } from '../format/bounds.ts';
import { foreignMember } from '../format/foreign-member.ts';
import { END_BYTES, roundUp, TAR_BLOCK } from '../format/layout.ts';
import type { Manifest } from '../format/manifest.ts';
import { isManifestName } from '../format/names.ts';
import type { Seal } from '../format/seal.ts';
import { readSeekTable, SEEK_FOOTER_BYTES, type SeekTable, seekTableBytes } from '../format/seek-table.ts';
import {
  checkMemberNames,
  dataOffsetFor,
  decodeHeader,
  flattened,
  type WalkedMember,
  walkTar,
} from '../format/tar-format.ts';
import { type ArchiveMember, listedMember } from '../format/types.ts';
import { type FileLock, fileBusy, isBeingWritten, lockFile } from '../system/file-lock.ts';
import { lookThrough } from './look.ts';
import { ManifestReader } from './manifest-reader.ts';
import { type FoundAgain, findPackedAgain, type PackedAgain } from './packed-again.ts';
import { type Salvaged, salvage } from './salvage.ts';
import { scanStream } from './stream.ts';
import {
  ArchiveFile,
  HeadSource,
  PlainSource,
  readerOf,
  SeekableSource,
  type TarSource,
} from './tar-source.ts';

/** Most of the tail that is looked through for the manifest. */
const MAX_TAIL_BYTES = MAX_MANIFEST_BYTES + 1024 * 1024;

/** How the bytes of members are reached. */
export type Access =
  | { kind: 'plain'; source: TarSource }
  | { kind: 'seekable'; source: TarSource; table: SeekTable }
  /**
   * A foreign zstd file without seek table: only from its beginning. `checked`: all its frames have checksums. `heads`: the beginnings
   * of its members; absent where it was not read.
   */
  | { kind: 'stream'; checked: boolean; heads?: TarSource };

export interface Inspection {
  file: ArchiveFile;
  access: Access;
  manifest: Manifest | null;
  /** Of that manifest. */
  seal?: Seal;
  /** Reads the other manifests; absent of a stream. */
  manifests?: ManifestReader;
  members: ArchiveMember[];
  /** One of ours that was unpacked and packed again; `manifest` is null then. */
  again?: PackedAgain;
  /** What is wrong with the archive as a whole; such an archive may only be verified. */
  fault?: VirtkeepError;
  /** Set beside a fault when older states can still be read: manifest and members are those of the newest such state. */
  salvaged?: Salvaged;
}

/**
 * How an archive is held while it is open: by a shared lock of its own until it is closed (`shared`), by a lock of the
 * caller, or not at all. Without a lock only parts that an extension leaves alone are read, and no writer is kept waiting:
 * `none` is a short look; `look` unpacks one stream of zstd, and ends when the file is removed.
 */
export type Holding = 'shared' | 'none' | 'look' | FileLock;

/**
 * Opens a file and finds its members: from the manifest at the end, else by walking the headers. Damage is returned
 * as `fault` with what could be read; the caller closes the file.
 * @throws VirtkeepError io_failed, canceled, archive_unsupported, not_a_file; file_busy when another node writes it
 */
export async function inspect(
  path: string,
  signal: AbortSignal,
  holding: Holding = 'shared',
): Promise<Inspection> {
  throwIfAborted(signal);
  const file = await openHeld(path, holding);
  try {
    const found = await inspectOpen(file, signal, holding);
    const isReadable = found.manifest !== null && found.fault === undefined;
    if (isReadable && standsAtEnd(found.members)) return found;
    if ((holding === 'none' || holding === 'look') && (await isBeingWritten(file.handle)))
      throw fileBusy(path);
    // No manifest at the end: of somebody else, unless an older one of ours describes the beginning, or all where they stood before.
    const salvaged = isReadable ? undefined : await salvage(found, signal);
    return salvaged ?? (await asPackedAgain(found, signal)) ?? found;
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function openHeld(path: string, holding: Holding): Promise<ArchiveFile> {
  const lock = holding === 'shared' ? await lockFile(path, 'shared') : undefined;
  const handle = lock?.handle ?? (await opened(path));
  const close = () => lock?.release() ?? handle.close();
  try {
    const status = await handle.stat();
    return new ArchiveFile(handle, path, status.size, close);
  } catch (error) {
    await close();
    throw error;
  }
}

async function opened(path: string): Promise<FileHandle> {
  try {
    return await openForeign(path);
  } catch (error) {
    throw fromIoError(error, 'opening', path);
  }
}

const unsupported = (path: string, reason: string) =>
  new VirtkeepError('archive_unsupported', { path, reason });
const damaged = (path: string, reason: string) => new VirtkeepError('archive_damaged', { path, reason });

async function inspectOpen(file: ArchiveFile, signal: AbortSignal, holding: Holding): Promise<Inspection> {
  const { path } = file;
  const base = { file, manifest: null, members: [] };
  const access = await accessOf(file);
  if (typeof access === 'string')
    return { ...base, access: { kind: 'stream', checked: false }, fault: damaged(path, access) };
  // a small one may hold terabytes
  if (access.kind === 'stream' && holding === 'none') return { ...base, access };
  if (access.kind === 'stream') {
    const {
      members,
      heads: kept,
      checked,
      fault,
    } = await (holding === 'look'
      ? lookThrough(file, signal)
      : scanStream(file.handle.fd, path, { signal, mostBytes: mostUnpacked(file.sizeBytes) }));
    const heads = new HeadSource(kept, path);
    const read = { ...base, access: { ...access, checked, heads }, members: foreignMembers(members) };
    return finished(read, path, fault);
  }
  const manifests = new ManifestReader(access.source, path);
  const reachable = { ...base, access, manifests };
  try {
    const found = await findManifest(access.source, manifests);
    if (found !== undefined) return { ...reachable, ...found, ...faultEntry(layoutFault(found, path)) };
  } catch (error) {
    if (!hasKey(error, 'archive_damaged')) throw error;
    return { ...reachable, members: (await walk(access.source, signal)).members, fault: error };
  }
  const { members, fault } = await walk(access.source, signal);
  return finished({ ...reachable, members }, path, fault);
}

const faultEntry = (fault: VirtkeepError | undefined) => (fault === undefined ? {} : { fault });

/** A foreign archive as it was walked, with its fault if it has one. */
function finished(inspection: Inspection, path: string, fault: string | undefined): Inspection {
  if (fault !== undefined) return { ...inspection, fault: damaged(path, fault) };
  try {
    checkMemberNames(inspection.members, path);
    return inspection;
  } catch (error) {
    return { ...inspection, fault: error as VirtkeepError };
  }
}

/**
 * The same as one of ours that was packed again. Undefined when it is none; one whose manifest lists what is not there has a fault, or
 * is what it was when the manifest stands at its end.
 */
async function asPackedAgain(found: Inspection, signal: AbortSignal): Promise<Inspection | undefined> {
  const { access, file, manifest } = found;
  const source = access.kind === 'stream' ? access.heads : access.source;
  if (source === undefined || (manifest === null && found.fault !== undefined)) return undefined;
  try {
    const walked = manifest === null ? found : await walkedAnew(found, source, signal);
    const again = await findPackedAgain(source, file.path, walked.members);
    return again && withAgain(walked, again);
  } catch (error) {
    if (!hasKey(error, 'archive_damaged', 'archive_unsupported')) throw error;
    return manifest === null ? { ...found, fault: error } : undefined;
  }
}

/** By its headers, as if the manifest at its end were not there. @throws VirtkeepError archive_damaged, archive_unsupported */
async function walkedAnew(
  { file, access }: Inspection,
  source: TarSource,
  signal: AbortSignal,
): Promise<Inspection> {
  const { members, fault } = await walk(source, signal);
  if (fault !== undefined) throw damaged(file.path, fault);
  checkMemberNames(members, file.path);
  return { file, access, manifest: null, members };
}

/** Members as their manifest knows them, in the order in which they stand now. */
function withAgain(inspection: Inspection, { again, lost }: FoundAgain): Inspection {
  const listed = new Map(again.manifest.members.map(member => [member.name, member]));
  const members = inspection.members.map(member => {
    const record = listed.get(member.name);
    return record === undefined ? member : listedMember(record);
  });
  if (lost === null) return { ...inspection, members, again };
  const fault = damaged(inspection.file.path, lost);
  const salvaged = { lost: members.filter(({ name }) => !listed.has(name)), unreadable: null, cut: null };
  return { ...inspection, members, again, fault, salvaged };
}

/** Tells the format from the first and the last bytes; a string says what is wrong with the seek table. */
async function accessOf(file: ArchiveFile): Promise<Access | string> {
  const { path, sizeBytes } = file;
  const start = await file.read(0, TAR_BLOCK);
  const magic = start.length < 4 ? 0 : start.readUInt32LE(0);
  const isZstd = magic === 0xfd2fb528 || (magic & 0xfffffff0) >>> 0 === 0x184d2a50;
  if (!isZstd) {
    const isTar =
      start.length === TAR_BLOCK &&
      (start.every(byte => byte === 0) || typeof decodeHeader(start) === 'object');
    if (!isTar) throw unsupported(path, 'it is neither a tar nor zstd');
    return { kind: 'plain', source: new PlainSource(file) };
  }
  const footerAt = Math.max(0, sizeBytes - SEEK_FOOTER_BYTES);
  const tableBytes = seekTableBytes(await file.read(footerAt, SEEK_FOOTER_BYTES));
  if (tableBytes === undefined) return { kind: 'stream', checked: false };
  if (tableBytes > sizeBytes) return 'its seek table is larger than the file';
  if (tableBytes > MAX_FRAMES * 12) throw unsupported(path, 'its seek table is too large');
  const readAt = (offset: number, lengthBytes: number) => file.read(offset, lengthBytes);
  const table = await readSeekTable(readAt, tableBytes, sizeBytes);
  if (typeof table === 'string') return table;
  return { kind: 'seekable', table, source: new SeekableSource(file, table) };
}

const foreignMembers = (walked: readonly WalkedMember[]): ArchiveMember[] =>
  flattened(walked).map(foreignMember);

async function walk(
  source: TarSource,
  signal: AbortSignal,
): Promise<{ members: ArchiveMember[]; fault?: string }> {
  const walked: WalkedMember[] = [];
  const end = await walkTar(readerOf(source, signal), walked).catch((error: unknown) => {
    if (hasKey(error, 'archive_damaged')) return { endOffset: 0, fault: error.params.reason };
    throw error;
  });
  const members = foreignMembers(walked);
  return end.fault === undefined ? { members } : { members, fault: end.fault };
}

interface Found {
  manifest: Manifest;
  seal: Seal;
  members: ArchiveMember[];
}

/** Looks for the manifest, the last member, backwards from the end. Undefined for a tar that is not ours. */
async function findManifest(source: TarSource, manifests: ManifestReader): Promise<Found | undefined> {
  if (source.tarBytes % TAR_BLOCK !== 0) return undefined;
  for (const start of source.tailStarts()) {
    if (source.tarBytes - start > MAX_TAIL_BYTES) continue;
    const tail = await source.read(start, source.tarBytes - start);
    const at = manifestHeaderIn(tail);
    if (at === undefined) continue;
    const header = decodeHeader(tail.subarray(at, at + TAR_BLOCK));
    if (typeof header === 'string') return undefined;
    const { name, sizeBytes } = header;
    const dataStart = at + TAR_BLOCK;
    const bytes = tail.subarray(dataStart, dataStart + sizeBytes);
    const { manifest, seal } = await manifests.newest(bytes, start + dataStart);
    const own: ArchiveMember = {
      name,
      kind: 'manifest',
      sizeBytes,
      dataOffset: start + dataStart,
      sha256: null,
      formerPath: null,
    };
    return { manifest, seal, members: [...manifest.members.map(listedMember), own] };
  }
  return undefined;
}

/** Offset in the tail of a manifest's header whose data reaches exactly to the end-of-archive blocks. */
function manifestHeaderIn(tail: Buffer): number | undefined {
  const end = tail.length - END_BYTES;
  if (end < 0 || tail.subarray(end).some(byte => byte !== 0)) return undefined;
  for (let at = end - TAR_BLOCK; at >= 0; at -= TAR_BLOCK) {
    if (tail.toString('latin1', at + 257, at + 262) !== 'ustar') continue;
    const header = decodeHeader(tail.subarray(at, at + TAR_BLOCK));
    if (typeof header === 'string' || !isManifestName(header.name)) continue;
    if (at + TAR_BLOCK + roundUp(header.sizeBytes, TAR_BLOCK) === end) return at;
  }
  return undefined;
}

/**
 * Whether a manifest stands directly behind the members that it lists, as in every archive of ours that is as it was written.
 * In an archive that somebody packed again it is last only by chance. So this decides which of the two an archive is: ours, whose
 * signature counts and which may be extended, or packed again and foreign, for which nobody vouches.
 */
function standsAtEnd(members: readonly ArchiveMember[]): boolean {
  const own = members.at(-1)!;
  const last = members.at(-2);
  const free = last === undefined ? 0 : roundUp(last.dataOffset + last.sizeBytes, TAR_BLOCK);
  return dataOffsetFor(free, own.name, false) === own.dataOffset;
}

/** A manifest must describe places inside the file, one after another. */
function layoutFault({ members }: Found, path: string): VirtkeepError | undefined {
  try {
    checkMemberNames(members, path);
  } catch (error) {
    return error as VirtkeepError;
  }
  let free = 0;
  for (const { name, dataOffset, sizeBytes } of members) {
    if (dataOffset % TAR_BLOCK !== 0 || dataOffset < free + TAR_BLOCK)
      return damaged(path, `the manifest places "${name}" where it cannot be`);
    free = dataOffset + roundUp(sizeBytes, TAR_BLOCK);
    if (!Number.isSafeInteger(free)) return damaged(path, `the manifest gives "${name}" an impossible size`);
  }
  return undefined;
}
