/**
 * A disk that another node lends, judged by the node that is going to open it. What QEMU opens is decided by the headers of the
 * layers, and those may have been written by others: so every layer is looked at here, in the format that the owner's definition
 * gives it, and must lie in a data pool of this node where images lie.
 *
 * What remains: whoever may write to the pool may replace a layer after this look, and libvirt takes paths. He may do the same to
 * the disks of every VM of that pool, at each of their starts.
 */
import { lstat, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { notAFile, specialKindOf } from '@virtkeep/shared/foreign-file';
import { MOST_LAYERS, readImageHeader } from '../../disks/index.ts';
import { BACKUPS_DIR, isInside, type PoolRecord } from '../../pools/index.ts';

/** Formats in which disks are lent; others are read by code of QEMU that sees foreign bytes nowhere else. */
const FORMATS = new Set(['raw', 'qcow2']);

type Refusal = string;

/**
 * Why the image and what it stands on are not attached, or undefined. Nothing outside of the pools is opened.
 * @param path without links
 * @param format what the owner's definition says: a raw disk stays one, whatever its guest wrote to its first bytes
 * @throws VirtkeepError io_failed, not_a_file when a layer cannot be looked at
 */
export async function lentImageRefusal(
  path: string,
  format: string,
  pools: readonly PoolRecord[],
): Promise<Refusal | undefined> {
  const homes = await homesOf(pools);
  let layer: { path: string; format: string } | undefined = { path, format };
  for (let count = 1; layer; count += 1) {
    if (count > MOST_LAYERS) return `${path} has more than ${MOST_LAYERS} layers`;
    const refusal = placeRefusal(layer.path, homes) ?? formatRefusal(layer);
    if (refusal !== undefined) return refusal;
    const below = await belowOf(layer);
    if (typeof below === 'string') return below;
    layer = below;
  }
  return undefined;
}

interface Home {
  directory: string;
  /** Images in it may be attached. */
  isUsable: boolean;
}

async function homesOf(pools: readonly PoolRecord[]): Promise<Home[]> {
  const homes: Home[] = [];
  for (const { path, hasDirectory, active, mounted, outside } of pools) {
    const directory = path && (await realpath(path).catch(() => undefined));
    if (directory) homes.push({ directory, isUsable: hasDirectory && active && mounted && !outside });
  }
  return homes;
}

/** The innermost pool decides; the one that an administrator named wins over an outside one of the same directory. */
function placeRefusal(path: string, homes: readonly Home[]): Refusal | undefined {
  const around = homes.filter(({ directory }) => isInside(path, directory));
  const innermost = Math.max(0, ...around.map(({ directory }) => directory.length));
  const isUsable = around.some(home => home.isUsable && home.directory.length === innermost);
  if (!isUsable) return `${path} is in no data pool whose images may be used`;
  if (around.some(({ directory }) => isInside(path, join(directory, BACKUPS_DIR))))
    return `${path} is among the backup files of its data pool`;
  return undefined;
}

const formatRefusal = ({ path, format }: { path: string; format: string }): Refusal | undefined =>
  FORMATS.has(format)
    ? undefined
    : `${path} is ${format === '' ? 'of no format that is told' : `a ${format} image`}`;

/** The layer below, undefined for the last one, or why there must be none. */
async function belowOf({
  path,
  format,
}: {
  path: string;
  format: string;
}): Promise<{ path: string; format: string } | Refusal | undefined> {
  const what = specialKindOf(await lstat(path));
  if (what !== undefined) throw notAFile(path, what);
  if (format === 'raw') return undefined;
  const header = await readImageHeader(path);
  if (header.format !== 'qcow2') return `${path} is no qcow2 image`;
  if (header.dataFile) return `${path} keeps its data in another file`;
  if (header.unknownFeatures) return `${path} uses features that are not known`;
  const { backingFile, backingPath, backingFormat } = header;
  if (backingFile === undefined) return undefined;
  if (backingPath === undefined || backingFile.startsWith('json:'))
    return `${path} stands on something that is no plain file`;
  if (backingFormat === undefined) return `${path} does not say the format of what it stands on`;
  // as QEMU finds it: from the directory of the image, through whatever links are there
  const name = backingFile.replace(/^file:/, '');
  const below = await realpath(name.startsWith('/') ? name : `${dirname(path)}/${name}`).catch(
    () => undefined,
  );
  if (below === undefined) return `${path} stands on ${backingPath}, which is not there`;
  return { path: below, format: backingFormat };
}
