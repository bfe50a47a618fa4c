import { VirtkeepError } from '@virtkeep/shared/errors';
import { GROWTH_LIMITS, type GrowthLimits, MAX_DATA_FRAMES } from './bounds.ts';
import { BLOCK_BYTES } from './layout.ts';
import type { Manifest } from './manifest.ts';

/** Bytes of a record in a manifest without its texts: a little more than they are. */
const RECORD_BYTES = { member: 300, layer: 170, state: 300, snapshot: 450 };

/** What an archive holds, or is to hold. */
export interface TarSize {
  /** Bytes of the tar, holes included. */
  bytes: number;
  members: number;
}

/** Most frames of such a tar when it is compressed: each member has a header and a last block of its own. */
export const framesOfTar = ({ bytes, members }: TarSize): number =>
  Math.ceil(bytes / BLOCK_BYTES) + 2 * members;

/** What an archive holds by the members of its newest manifest. */
export function tarSizeOf(members: Manifest['members']): TarSize {
  const last = members.at(-1);
  return { bytes: last === undefined ? 0 : last.dataOffset + last.sizeBytes, members: members.length };
}

/** The most bytes that readers take of a compressed tar, when it has more; null when it has not. */
const limitExceeded = (size: TarSize, maxFrames: number): number | null =>
  framesOfTar(size) > maxFrames ? maxFrames * BLOCK_BYTES : null;

/**
 * Asked before a compressed archive is written: readers take no larger one, and a backup that cannot be read is none.
 * @param archive its path, or whose archive it is going to be
 * @throws VirtkeepError archive_too_large
 */
export function requireReadable(archive: string, size: TarSize, maxFrames = MAX_DATA_FRAMES): void {
  const limit = limitExceeded(size, maxFrames);
  if (limit === null) return;
  throw new VirtkeepError('archive_too_large', { path: archive, bytes: size.bytes, limit_bytes: limit });
}

/** Why a compressed archive cannot be extended to that size, as a sentence without its full stop; null: readers take it. */
export function whyTooLarge(size: TarSize, maxFrames = MAX_DATA_FRAMES): string | null {
  const limit = limitExceeded(size, maxFrames);
  if (limit === null) return null;
  return `with this increment it would hold ${size.bytes} bytes, and ${limit} are the most that can be read back: a new one is to be begun`;
}

/** How long an archive has become; pure, from its newest manifest. */
export function growthOf({ states, members, disks, snapshots }: Manifest): GrowthLimits {
  const texts = (parts: (string | null)[]) => parts.reduce((sum, part) => sum + (part?.length ?? 0), 0);
  const sum = (sizes: number[]) => sizes.reduce((total, size) => total + size, 0);
  return {
    states: states.length,
    members: members.length + 1,
    manifestBytes:
      sum(members.map(({ name, formerPath }) => RECORD_BYTES.member + texts([name, formerPath]))) +
      sum(
        disks.flatMap(({ layers }) =>
          layers.map(layer => RECORD_BYTES.layer + texts([layer.member, layer.formerPath, layer.frozenBy])),
        ),
      ) +
      states.length * RECORD_BYTES.state +
      snapshots.length * RECORD_BYTES.snapshot,
    frames: framesOfTar(tarSizeOf(members)),
  };
}

/**
 * Why an archive is to be followed by a new one instead of being extended, as a sentence without its full stop; null
 * while it may grow.
 */
export function whyGrown(manifest: Manifest, limits: GrowthLimits = GROWTH_LIMITS): string | null {
  const growth = growthOf(manifest);
  const words: Record<keyof GrowthLimits, string> = {
    states: 'states',
    members: 'members',
    manifestBytes: 'bytes of description',
    frames: 'blocks of 4 MiB',
  };
  for (const key of ['states', 'members', 'manifestBytes', 'frames'] as const)
    if (growth[key] >= limits[key])
      return `it has grown to ${growth[key]} ${words[key]}, and ${limits[key]} are enough for one archive: a new one is to be begun`;
  return null;
}
