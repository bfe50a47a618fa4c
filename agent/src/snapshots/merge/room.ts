/**
 * Whether a merge fits on the disk. The lower file grows by what the upper one holds and it does not; the upper one is
 * removed only at the end. A merge that runs into a full disk helps nobody: its half stays, and a guest that writes to the
 * same disk is paused by QEMU until somebody makes room.
 */
import { stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';
import { type Layer, qemuImg, readLayers } from '../../disks/index.ts';

/** What stays free for the guests, who go on writing meanwhile, and for the images' own tables. */
const RESERVE_BYTES = 16 * MiB;
/** The unit in which images grow. */
const CLUSTER_BYTES = 64 * 1024;

/** Bytes from start (inclusive) to end. */
export interface Extent {
  start: number;
  end: number;
}

/**
 * Refuses when the file systems have no room for merging each of these files into the one right below it.
 * @param freed files that go before the merge begins
 * @throws VirtkeepError pool_no_space, io_failed, canceled
 */
export async function requireRoomToMerge(
  uppers: readonly string[],
  freed: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const needs = new Map<number, { directory: string; layers: [Layer, Layer][] }>();
  for (const upper of uppers) {
    const [above, below] = await readLayers(upper, 'qcow2');
    if (!above || !below || (await stat(below.path)).isBlockDevice()) continue;
    const { dev } = await stat(below.path);
    const need = needs.get(dev) ?? { directory: dirname(below.path), layers: [] };
    need.layers.push([above, below]);
    needs.set(dev, need);
  }
  for (const [device, { directory, layers }] of needs) {
    const free = (await freeBytesOf(directory)) + (await allocatedOn(device, freed));
    if (free >= sum(layers, ([above, below]) => mostGrowth(above, below)) + RESERVE_BYTES) continue;
    const growths = await Promise.all(layers.map(([above, below]) => growth(above, below, signal)));
    const needed = sum(growths, bytes => bytes) + RESERVE_BYTES;
    if (free >= needed) continue;
    throw new VirtkeepError('pool_no_space', { pool: directory, free_bytes: free, needed_bytes: needed });
  }
}

/** Bytes free under a directory without those reserved for root. @throws VirtkeepError io_failed */
async function freeBytesOf(directory: string): Promise<number> {
  try {
    const { bavail, bsize } = await statfs(directory);
    return bavail * bsize;
  } catch (error) {
    throw fromIoError(error, 'reading', directory);
  }
}

/** At most so much, known from the sizes alone. */
function mostGrowth(above: Layer, below: Layer): number {
  return Math.min(above.allocatedSize, Math.max(0, above.virtualSize - below.allocatedSize));
}

/** What the upper image holds and the lower one does not, exactly, from their tables. */
async function growth(above: Layer, below: Layer, signal: AbortSignal): Promise<number> {
  try {
    return newBytes(await dataOf(above, signal), await dataOf(below, signal));
  } catch (error) {
    signal.throwIfAborted();
    // a map too long to be read: then only the sizes are known, and the merge itself will tell
    if (error instanceof VirtkeepError && error.msgKey === 'qemu_img_failed') return 0;
    throw error;
  }
}

interface MapEntry {
  start: number;
  length: number;
  depth: number;
  data: boolean;
}

async function dataOf({ path, format }: Layer, signal: AbortSignal): Promise<Extent[]> {
  const entries = JSON.parse(
    await qemuImg('map', ['--output=json', '-U', '-f', format, path], { signal }),
  ) as MapEntry[];
  return entries
    .filter(({ depth, data }) => depth === 0 && data)
    .map(({ start, length }) => ({ start, end: start + length }));
}

/** Bytes of whole clusters in the first that are not in the second; both in order. */
export function newBytes(upper: readonly Extent[], lower: readonly Extent[]): number {
  let bytes = 0;
  let next = 0;
  let counted = 0;
  for (const extent of upper) {
    let at = Math.max(floor(extent.start), counted);
    const end = ceil(extent.end);
    while (next < lower.length && ceil(lower[next]!.end) <= at) next += 1;
    for (let index = next; index < lower.length && floor(lower[index]!.start) < end; index += 1) {
      bytes += Math.max(0, floor(lower[index]!.start) - at);
      at = Math.max(at, ceil(lower[index]!.end));
    }
    bytes += Math.max(0, end - at);
    counted = Math.max(counted, end);
  }
  return bytes;
}

const floor = (offset: number) => offset - (offset % CLUSTER_BYTES);
const ceil = (offset: number) => floor(offset + CLUSTER_BYTES - 1);

async function allocatedOn(device: number, paths: readonly string[]): Promise<number> {
  const found = await Promise.all(paths.map(path => stat(path).catch(() => null)));
  return sum(found, facts => (facts?.dev === device ? facts.blocks * 512 : 0));
}

function sum<T>(items: readonly T[], bytesOf: (item: T) => number): number {
  return items.reduce((bytes, item) => bytes + bytesOf(item), 0);
}
