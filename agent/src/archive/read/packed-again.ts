import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { MAX_CHAIN_BYTES, MAX_MANIFEST_BYTES } from '../format/bounds.ts';
import { NO_PLAIN_FILE } from '../format/foreign-member.ts';
import { roundUp, TAR_BLOCK } from '../format/layout.ts';
import { type Manifest, type ManifestPart, type MemberRecord, parseManifest } from '../format/manifest.ts';
import { isManifestName, memberNames } from '../format/names.ts';
import type { ArchiveMember } from '../format/types.ts';
import { ManifestReader } from './manifest-reader.ts';
import type { TarSource } from './tar-source.ts';

/** So many of the newest manifests are tried: an archive that lacks what more of them list is no backup any more. */
const MOST_TRIED = 16;

/**
 * One of our archives that was unpacked and packed again: its manifests still tell what each member is, and not where it stands.
 * They are read as they stood in the archive that they were written for, and what they list is found by its name and size.
 *
 * Whoever packed it may have changed anything, so nobody vouches for it, whatever the signature in its manifest. The recorded
 * digests count all the same where they are compared: what differs was changed.
 */
export class PackedAgain {
  readonly #members: ReadonlyMap<string, ArchiveMember>;
  readonly #reader: ManifestReader;
  /** As it was written, but where each member stands. */
  readonly manifest: Manifest;
  /** The same, with the places that it recorded. */
  readonly #recorded: Manifest;
  /** Its members by their names: each state of a long archive asks for all of them. */
  readonly #listed: ReadonlyMap<string, MemberRecord>;

  constructor(members: ReadonlyMap<string, ArchiveMember>, reader: ManifestReader, recorded: Manifest) {
    this.#members = members;
    this.#reader = reader;
    this.#recorded = recorded;
    this.#listed = new Map(recorded.members.map(member => [member.name, member]));
    this.manifest = this.#placed(recorded);
  }

  /**
   * The manifest that a state was written with, as `Archive.manifestOfState` gives it.
   * @throws VirtkeepError member_not_found, archive_damaged, io_failed
   */
  async manifestOfState(stateNumber: number, path: string): Promise<Manifest> {
    const newest = this.#recorded;
    if (newest.states.at(-1)!.number === stateNumber) return this.manifest;
    const name = memberNames.manifest(stateNumber);
    const place = this.#listed.get(name);
    if (place === undefined) throw new VirtkeepError('member_not_found', { path, member: name });
    const { manifest } = await this.#reader.read(place);
    const isOfState =
      manifest.backupId === newest.backupId &&
      manifest.states.at(-1)!.number === stateNumber &&
      manifest.members.every(member => this.#listed.has(member.name));
    if (!isOfState) {
      const reason = `${name} describes another state or another backup`;
      throw new VirtkeepError('archive_damaged', { path, reason });
    }
    return { ...manifest, members: this.manifest.members };
  }

  #placed(manifest: Manifest): Manifest {
    const members = manifest.members.map(member => ({
      ...member,
      dataOffset: this.#members.get(member.name)!.dataOffset,
    }));
    return { ...manifest, members };
  }
}

/** What was found in a tar that its last member does not describe. */
export interface FoundAgain {
  again: PackedAgain;
  /** Why a newer manifest does not count; null: this is the newest. */
  lost: string | null;
}

/**
 * Looks for manifests of ours in a tar that was walked without fault. Undefined: it has none.
 * @throws VirtkeepError archive_damaged when no manifest's members are all there, with the first one that is not; io_failed
 */
export async function findPackedAgain(
  source: TarSource,
  path: string,
  members: readonly ArchiveMember[],
): Promise<FoundAgain | undefined> {
  const byName = new Map(members.map(member => [member.name, member]));
  const candidates = members.filter(({ name, kind }) => isManifestName(name) && kind === 'manifest');
  if (candidates.length === 0) return undefined;
  const newestFirst = candidates.toSorted((one, other) => numberOf(other) - numberOf(one));
  const parts = await readParts(source, path, newestFirst);
  const moved = new MovedSource(source, placesOf(parts.values(), byName));
  let lost: string | null = null;
  for (const { name } of newestFirst.slice(0, MOST_TRIED)) {
    const found = await whole(moved, path, parts.get(name), byName);
    if (typeof found !== 'string') return { again: found, lost };
    lost ??= `${name}: ${found}`;
  }
  throw new VirtkeepError('archive_damaged', { path, reason: lost! });
}

const numberOf = ({ name }: ArchiveMember): number => Number.parseInt(name, 10);

interface Part {
  bytes: Buffer;
  part: ManifestPart;
}

/** As many as a reader takes; one that cannot be read is absent. */
async function readParts(
  source: TarSource,
  path: string,
  newestFirst: readonly ArchiveMember[],
): Promise<Map<string, Part>> {
  const parts = new Map<string, Part>();
  let roomBytes = MAX_CHAIN_BYTES;
  for (const { name, dataOffset, sizeBytes } of newestFirst) {
    roomBytes -= sizeBytes;
    if (roomBytes < 0) break;
    if (sizeBytes > MAX_MANIFEST_BYTES) continue;
    const bytes = await source.read(dataOffset, sizeBytes);
    const part = readable(bytes, path);
    if (part !== undefined) parts.set(name, { bytes, part });
  }
  return parts;
}

function readable(bytes: Buffer, path: string): ManifestPart | undefined {
  try {
    return parseManifest(bytes, path);
  } catch (error) {
    if (hasKey(error, 'archive_damaged', 'archive_unsupported')) return undefined;
    throw error;
  }
}

/** By the place that a manifest had when the archive was made, the one it has now. */
function placesOf(
  parts: Iterable<Part>,
  members: ReadonlyMap<string, ArchiveMember>,
): ReadonlyMap<number, number> {
  const places = new Map<number, number>();
  for (const { part } of parts) {
    const { continues } = part;
    const listed = [...part.members, ...(continues ? [{ ...continues, name: continues.manifest }] : [])];
    for (const { name, dataOffset } of listed) {
      const now = isManifestName(name) ? members.get(name) : undefined;
      if (now !== undefined) places.set(dataOffset, now.dataOffset);
    }
  }
  return places;
}

/**
 * Manifests, and nothing else, where they stood. A recorded offset is a key here, and no place in this file: `0003_manifest.json` says that it
 * continues what stood at 153088; `0001_manifest.json`, which stood there, has its data at 1536 now; so `read(153088, …)` gives what is at 1536.
 */
class MovedSource implements TarSource {
  readonly tarBytes = Number.MAX_SAFE_INTEGER;
  readonly #source: TarSource;
  readonly #places: ReadonlyMap<number, number>;

  constructor(source: TarSource, places: ReadonlyMap<number, number>) {
    this.#source = source;
    this.#places = places;
  }

  async read(offset: number, lengthBytes: number): Promise<Buffer> {
    const now = this.#places.get(offset);
    return now === undefined ? Buffer.alloc(0) : await this.#source.read(now, lengthBytes);
  }

  tailStarts(): number[] {
    return [];
  }
}

/** The archive as a manifest describes it, or why that cannot be. */
async function whole(
  source: MovedSource,
  path: string,
  read: Part | undefined,
  members: ReadonlyMap<string, ArchiveMember>,
): Promise<PackedAgain | string> {
  if (read === undefined) return 'it cannot be read as a manifest';
  const reader = new ManifestReader(source, path);
  try {
    const { manifest } = await reader.newest(read.bytes, behind(read.part));
    const fault = missing(manifest.members, members);
    return fault ?? new PackedAgain(members, reader, manifest);
  } catch (error) {
    if (hasKey(error, 'archive_damaged', 'archive_unsupported')) return String(error.params.reason);
    throw error;
  }
}

/** A place behind all that a manifest lists: it stood at its end. */
function behind({ members, continues }: ManifestPart): number {
  const ends = [...members, ...(continues ? [continues] : [])].map(
    ({ dataOffset, sizeBytes }) => dataOffset + sizeBytes,
  );
  return (
    roundUp(
      ends.reduce((most, end) => Math.max(most, end), 0),
      TAR_BLOCK,
    ) + TAR_BLOCK
  );
}

function missing(
  listed: readonly MemberRecord[],
  members: ReadonlyMap<string, ArchiveMember>,
): string | undefined {
  for (const { name, sizeBytes } of listed) {
    const now = members.get(name);
    if (now === undefined) return `it lists "${name}", which is not in the archive`;
    if (now.isSpecial) return `its member "${name}" ${NO_PLAIN_FILE}`;
    if (now.sizeBytes !== sizeBytes)
      return `"${name}" has ${now.sizeBytes} bytes, and ${sizeBytes} are recorded`;
  }
  return undefined;
}
