import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { foreignMember } from '../format/foreign-member.ts';
import type { Manifest } from '../format/manifest.ts';
import { isManifestName } from '../format/names.ts';
import { type WalkEnd, type WalkedMember, walkTar } from '../format/tar-format.ts';
import { type ArchiveMember, listedMember } from '../format/types.ts';
import { walkFrames } from './frames.ts';
import type { Access, Inspection } from './inspect.ts';
import { ManifestReader, type ReadManifest } from './manifest-reader.ts';
import { readerOf, SeekableSource, type TarSource } from './tar-source.ts';

/** What is left of an archive of ours whose newest manifest or end is gone. */
export interface Salvaged {
  /** Members behind the last readable manifest: of a state that is lost. */
  lost: ArchiveMember[];
  /** The unreadable manifest among them, when the tar itself ends as it must. */
  unreadable: string | null;
  /** The last of the lost ones, when the file ends inside it. */
  cut: string | null;
}

type Reachable = Exclude<Access, { kind: 'stream' }>;

/**
 * Looks for the last manifest that can be read, by walking the headers (and the frames, when the seek table is gone),
 * and takes the archive as it was then: all states up to that one. Undefined when there is none, or when it describes
 * another tar (one that was unpacked and packed again).
 * @param oldEnd where the tar ended before an extension that does not count; default: all counts
 * @throws VirtkeepError io_failed, canceled
 */
export async function salvage(
  inspection: Inspection,
  signal: AbortSignal,
  oldEnd?: number,
): Promise<(Inspection & { fault: VirtkeepError; salvaged: Salvaged }) | undefined> {
  const { file } = inspection;
  const access = await reachable(inspection, signal);
  if (access === undefined) return undefined;
  const walked: WalkedMember[] = [];
  const end = await walkAll(access.source, walked, signal);
  const manifests = new ManifestReader(access.source, file.path);
  const kept = oldEnd === undefined ? walked : walked.filter(({ dataOffset }) => dataOffset < oldEnd);
  const found = await lastManifest(manifests, kept);
  if (found === undefined) return undefined;
  const { manifest, seal, at } = found;
  manifests.goBy(found, walked[at]!);
  const members = [
    ...manifest.members.map(listedMember),
    { ...listedMember(walked[at]!), kind: 'manifest' as const },
  ];
  const lost = walked.slice(at + 1).map(foreignMember);
  const last = lost.at(-1);
  const cut = last !== undefined && last.dataOffset + last.sizeBytes > access.source.tarBytes;
  const isTakenBack = oldEnd !== undefined;
  const damagedLast = end.fault === undefined && last !== undefined && isManifestName(last.name);
  const salvaged: Salvaged = {
    lost,
    unreadable: damagedLast && !isTakenBack ? last.name : null,
    cut: cut ? last.name : null,
  };
  const what = isTakenBack
    ? 'an increment of it was cut off before all of it was on the disk'
    : 'what follows its last manifest is not complete';
  const fault = inspection.fault ?? tornTail(file.path, what);
  return { ...inspection, access, manifest, seal, manifests, members, fault, salvaged };
}

const tornTail = (path: string, what: string) =>
  new VirtkeepError('archive_damaged', { path, reason: `torn tail: ${what}` });

/** A way to the members that needs no seek table. */
async function reachable({ access, file }: Inspection, signal: AbortSignal): Promise<Reachable | undefined> {
  if (access.kind !== 'stream') return access;
  const table = await walkFrames(file, signal);
  if (table.frameCount === 0) return undefined;
  return { kind: 'seekable', table, source: new SeekableSource(file, table) };
}

async function walkAll(source: TarSource, walked: WalkedMember[], signal: AbortSignal): Promise<WalkEnd> {
  try {
    return await walkTar(readerOf(source, signal), walked);
  } catch (error) {
    if (!hasKey(error, 'archive_damaged', 'archive_unsupported')) throw error;
    return { endOffset: 0, fault: error.params.reason ?? error.message };
  }
}

/** The last member that is a manifest and describes exactly the members before it. */
async function lastManifest(
  manifests: ManifestReader,
  walked: readonly WalkedMember[],
): Promise<(ReadManifest & { at: number }) | undefined> {
  for (let at = walked.length - 1; at >= 0; at--) {
    if (!isManifestName(walked[at]!.name)) continue;
    const read = await readManifest(manifests, walked[at]!);
    if (read !== undefined && describes(read.manifest, walked.slice(0, at))) return { ...read, at };
  }
  return undefined;
}

const describes = ({ members }: Manifest, walked: readonly WalkedMember[]): boolean =>
  members.length === walked.length &&
  members.every(({ name, dataOffset, sizeBytes }, index) => {
    const there = walked[index]!;
    return there.name === name && there.dataOffset === dataOffset && there.sizeBytes === sizeBytes;
  });

/** A manifest in the middle or at the end of the tar; undefined when it cannot be read. */
export async function readManifest(
  manifests: ManifestReader,
  member: Pick<ArchiveMember, 'dataOffset' | 'sizeBytes'>,
): Promise<ReadManifest | undefined> {
  try {
    return await manifests.read(member);
  } catch (error) {
    if (hasKey(error, 'archive_damaged', 'archive_unsupported')) return undefined;
    throw error;
  }
}
