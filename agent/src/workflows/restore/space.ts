/** Where the files of a backup go, by the bytes that they will really take. */
import { hasKey, type VirtkeepError } from '@virtkeep/shared/errors';
import type { Archive, Manifest } from '../../archive/index.ts';
import { type Placement, type PlacementInput, placeFiles } from './placement.ts';

/**
 * Places the files of a backup by the bytes that the archive has. With the smaller sizes of a forged or damaged manifest a
 * restore could begin that fills the pool for all others. Zeros that are no holes in the archive (written by a program that
 * fills holes, or read from a file system that reports none) count as data at first; they are counted when that decides.
 * @throws VirtkeepError as `placeFiles`; archive_damaged, io_failed, canceled
 */
export async function placeBySize(
  archive: Pick<Archive, 'mostBytes' | 'countBytes'>,
  input: Omit<PlacementInput, 'bytesOf'>,
  signal: AbortSignal,
): Promise<Placement> {
  const most = new Map<string, number>();
  for (const name of membersOf(input)) {
    signal.throwIfAborted();
    most.set(name, await archive.mostBytes(name));
  }
  const manifestSizes = manifestSizesOf(input.manifest, most);
  const placed = attempt(input, most);
  const isDecided = poolsOf(placed) === poolsOf(attempt(input, manifestSizes));
  if (isDecided && !hasKey(placed, 'pool_no_space')) return placed as Placement;
  if (isDecided) throw placed;
  const counted = new Map<string, number>();
  for (const [name, bytes] of most)
    counted.set(name, bytes <= manifestSizes.get(name)! ? bytes : await archive.countBytes(name, signal));
  return placeFiles({ ...input, bytesOf: counted });
}

/** The members that are extracted. */
function membersOf({ manifest, memoryMembers }: Omit<PlacementInput, 'bytesOf'>): Set<string> {
  const layers = manifest.disks.flatMap(disk => disk.layers.map(({ member }) => member));
  const images = manifest.isos.flatMap(({ member }) => member ?? []);
  return new Set([...layers, ...images, ...memoryMembers]);
}

/** Sizes of members by the manifest, where they are less than the most that can come. */
function manifestSizesOf({ members }: Manifest, most: ReadonlyMap<string, number>): Map<string, number> {
  const sizes = new Map(members.map(({ name, allocatedBytes }) => [name, allocatedBytes]));
  return new Map([...most].map(([name, bytes]) => [name, Math.min(bytes, sizes.get(name) ?? bytes)]));
}

function attempt(
  input: Omit<PlacementInput, 'bytesOf'>,
  bytesOf: ReadonlyMap<string, number>,
): Placement | VirtkeepError {
  try {
    return placeFiles({ ...input, bytesOf });
  } catch (error) {
    if (hasKey(error, 'pool_no_space')) return error;
    throw error;
  }
}

/** Where everything goes; empty when there is no room for it. */
function poolsOf(placed: Placement | VirtkeepError): string {
  if (hasKey(placed, 'pool_no_space')) return '';
  const { disks, images, memory } = placed as Placement;
  return [...disks, ...images, memory].map(({ pool }) => pool.id).join(' ');
}
