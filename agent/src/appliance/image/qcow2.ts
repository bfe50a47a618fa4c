/**
 * qcow2, as docs/interop/qcow2.txt of QEMU describes it.
 *
 * What lies beyond the end of a file QEMU reads as zeros, the tables, too: an image of which half is missing is an empty disk to it,
 * and its check finds no error. So here is looked where the tables lie, and where the data end.
 */
import { roundUp } from '@virtkeep/shared/units';
import { imageHeaderOf, SECTOR_BYTES } from '../../disks/index.ts';
import { MAX_TABLES, MAX_VIRTUAL_BYTES } from '../bounds.ts';
import { Fault } from '../fault.ts';
import { exact, type ImageBytes, type Judged, readWhole } from './image.ts';

export const QCOW2_MAGIC = 'QFI\xfb';
const HEAD_BYTES = 64 * 1024;
const MIN_HEAD_BYTES = 104;
const INCOMPATIBLE_DIRTY = 1n;
const INCOMPATIBLE_CORRUPT = 2n;
const INCOMPATIBLE_EXTENDED = 16n;

/** A qcow2 that stands alone and is whole. @throws Fault */
export async function judgeQcow2(image: ImageBytes): Promise<Judged> {
  const head = await image.read(0, HEAD_BYTES);
  if (head.length < MIN_HEAD_BYTES) throw new Fault('it is cut off');
  const header = imageHeaderOf(head, image.sizeBytes);
  if (header.backingFile !== undefined) throw new Fault('it stands on another image');
  if (header.dataFile) throw new Fault('its content lies in another file');
  if (header.unknownFeatures) throw new Fault('it uses features that are not known');
  if (header.encrypted) throw new Fault('it is encrypted');
  const features = head.readUInt32BE(4) >= 3 ? head.readBigUInt64BE(72) : 0n;
  if ((features & INCOMPATIBLE_CORRUPT) !== 0n) throw new Fault('it is marked as damaged');
  await checkEnd(image, head, header.virtualSize, (features & INCOMPATIBLE_EXTENDED) !== 0n);
  const snapshots = head.readUInt32BE(60);
  return {
    virtualSizeBytes: header.virtualSize,
    warnings: [
      ...((features & INCOMPATIBLE_DIRTY) !== 0n ? ['was not closed by its last writer'] : []),
      ...(snapshots > 0 ? [`has ${snapshots} saved states inside, which are left out`] : []),
    ],
  };
}

/** Bits of an entry that are a place in the file. */
const OFFSET = 0x00ff_ffff_ffff_fe00n;
const IS_COMPRESSED = 1n << 62n;
/** The cluster reads as zeros, whether it has a place or not. */
const IS_ZERO = 1n;

/**
 * Each place of a table is a multiple of a cluster, which QEMU asks for as well, and only the tables of the disk's own size are read, not
 * those of saved states: so no small file names more tables than a disk of that size has.
 */
async function checkEnd(
  image: ImageBytes,
  head: Buffer,
  virtualSizeBytes: number,
  isExtended: boolean,
): Promise<void> {
  const [clusterBits, count] = [head.readUInt32BE(20), head.readUInt32BE(36)];
  if (clusterBits < 9 || clusterBits > 21 || count > MAX_TABLES)
    throw new Fault('its clusters or tables have an impossible size');
  const clusterBytes = 2 ** clusterBits;
  const placeOf = (entry: bigint): number => {
    const place = exact(entry);
    if (place % clusterBytes !== 0) throw new Fault('its tables lie where none can lie');
    return place;
  };
  const entryBytes = isExtended ? 16 : 8;
  const needed = Math.ceil(virtualSizeBytes / (clusterBytes * (clusterBytes / entryBytes)));
  if (virtualSizeBytes > MAX_VIRTUAL_BYTES || needed > count)
    throw new Fault(`its size of ${virtualSizeBytes} bytes is impossible`);
  const first = await readWhole(image, placeOf(head.readBigUInt64BE(40)), needed * 8, 'first table');
  const tables = new Set<number>();
  for (let at = 0; at < first.length; at += 8) tables.add(placeOf(first.readBigUInt64BE(at) & OFFSET));
  // 0: nothing was written there
  tables.delete(0);
  let end = 0;
  for (const offset of tables) {
    const table = await readWhole(image, offset, clusterBytes, 'table');
    for (let at = 0; at < table.length; at += entryBytes) {
      // how many parts of the cluster there are, to the last that was written
      const parts = isExtended ? 32 - Math.clz32(table.readUInt32BE(at + 12)) : 32;
      end = Math.max(end, endOfCluster(table.readBigUInt64BE(at), clusterBits, parts));
    }
  }
  // compressed clusters are counted in sectors, the last of which need not be whole
  if (end > roundUp(image.sizeBytes, SECTOR_BYTES))
    throw new Fault(`it is cut off: it has ${image.sizeBytes} bytes, its data reach to ${end}`);
}

/** @param parts of its 32: all, where clusters have none */
function endOfCluster(entry: bigint, clusterBits: number, parts: number): number {
  if ((entry & IS_COMPRESSED) !== 0n) {
    const offsetBits = BigInt(62 - (clusterBits - 8));
    const sectors = (entry & (IS_COMPRESSED - 1n)) >> offsetBits;
    const start = exact(entry & ((1n << offsetBits) - 1n));
    return (Math.floor(start / SECTOR_BYTES) + Number(sectors) + 1) * SECTOR_BYTES;
  }
  const offset = exact(entry & OFFSET);
  return offset === 0 || (entry & IS_ZERO) !== 0n ? 0 : offset + (2 ** clusterBits / 32) * parts;
}
