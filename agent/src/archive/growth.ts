import { GROWTH_LIMITS, type GrowthLimits } from './bounds.ts';
import { BLOCK_BYTES } from './layout.ts';
import type { Manifest } from './manifest.ts';

/** Bytes of a record in a manifest without its texts: a little more than they are. */
const RECORD_BYTES = { member: 300, layer: 170, state: 300, snapshot: 450 };

/** How long an archive has become; pure, from its newest manifest. */
export function growthOf({ states, members, disks, snapshots }: Manifest): GrowthLimits {
  const texts = (parts: (string | null)[]) => parts.reduce((sum, part) => sum + (part?.length ?? 0), 0);
  const sum = (sizes: number[]) => sizes.reduce((total, size) => total + size, 0);
  const last = members.at(-1);
  const tarBytes = last === undefined ? 0 : last.dataOffset + last.sizeBytes;
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
    // a header and a last block of its own for each member
    frames: Math.ceil(tarBytes / BLOCK_BYTES) + 2 * members.length,
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
