// VHD and VHDX, as Microsoft's "Virtual Hard Disk Image Format Specification" and "[MS-VHDX]" describe them.
import { KiB } from '@virtkeep/shared/units';
import { SECTOR_BYTES } from '../../disks/index.ts';
import { Fault } from '../fault.ts';
import { exact, type ImageBytes, type Judged, readWhole } from './image.ts';

export const VHD_MAGIC = 'conectix';
export const VHDX_MAGIC = 'vhdxfile';
const DIFFERENCE = 'it holds only what differs from another image';
const VHD_FIXED = 2;
const VHD_DYNAMIC = 3;
const VHD_DIFFERENCING = 4;

/** A VHD ends with its footer; a growing one begins with a copy of it. @throws Fault */
export async function judgeVhd(image: ImageBytes): Promise<Judged> {
  if (image.sizeBytes % SECTOR_BYTES !== 0) throw new Fault('it does not end with a sector: it is cut off');
  const footer = await footerAt(image, image.sizeBytes - SECTOR_BYTES);
  if (footer === undefined) throw new Fault('its footer is missing: it is cut off');
  const { type, virtualSizeBytes } = footer;
  if (type === VHD_DIFFERENCING) throw new Fault(DIFFERENCE);
  const copy = await footerAt(image, 0);
  const isFixed = type === VHD_FIXED && copy === undefined;
  if (!isFixed && !(type === VHD_DYNAMIC && copy?.type === VHD_DYNAMIC))
    throw new Fault(`its header and footer make no VHD of a kind that is known (${copy?.type}, ${type})`);
  if (copy !== undefined && copy.virtualSizeBytes !== virtualSizeBytes)
    throw new Fault('its header and footer contradict each other');
  if (isFixed && image.sizeBytes - SECTOR_BYTES < virtualSizeBytes) throw new Fault('it is cut off');
  return { virtualSizeBytes, warnings: [] };
}

async function footerAt(image: ImageBytes, offset: number) {
  const block = await readWhole(image, offset, SECTOR_BYTES, 'footer');
  if (block.toString('latin1', 0, 8) !== VHD_MAGIC) return undefined;
  return { virtualSizeBytes: exact(block.readBigUInt64BE(48)), type: block.readUInt32BE(60) };
}

/** Places that the specification fixes. */
const HEADERS_AT = [64 * KiB, 128 * KiB];
const REGIONS_AT = 192 * KiB;
const TABLE_BYTES = 64 * KiB;
const MAX_REGIONS = 2_047;
const MAX_ITEMS = 2_047;
/** As they stand in the file. */
const METADATA_REGION = '06a27c8b90479a4bb8fe575f050f886e';
const FILE_PARAMETERS = '3767a1ca36fa434db3b633f0aa44e76b';
const VIRTUAL_SIZE = '2442a52f1bcd7648b2115dbed83bf4b8';
const HAS_PARENT = 1 << 1;
const NO_LOG = '0'.repeat(32);

/** @throws Fault */
export async function judgeVhdx(image: ImageBytes): Promise<Judged> {
  await refuseLog(image);
  const regions = await readWhole(image, REGIONS_AT, TABLE_BYTES, 'table of regions');
  if (regions.toString('latin1', 0, 4) !== 'regi') throw new Fault('it has no table of regions');
  const region = entriesOf(regions, 16, regions.readUInt32LE(8), MAX_REGIONS).get(METADATA_REGION);
  if (region === undefined) throw new Fault('it does not describe itself');
  const start = exact(region.readBigUInt64LE(16));
  const table = await readWhole(image, start, TABLE_BYTES, 'description');
  if (table.toString('latin1', 0, 8) !== 'metadata') throw new Fault('it does not describe itself');
  const items = entriesOf(table, 32, table.readUInt16LE(10), MAX_ITEMS);
  const item = async (id: string, bytes: number) => {
    const entry = items.get(id);
    if (entry === undefined) throw new Fault('it describes itself in part only');
    return await readWhole(image, start + entry.readUInt32LE(16), bytes, 'description');
  };
  const parameters = await item(FILE_PARAMETERS, 8);
  if ((parameters.readUInt32LE(4) & HAS_PARENT) !== 0) throw new Fault(DIFFERENCE);
  const virtualSizeBytes = exact((await item(VIRTUAL_SIZE, 8)).readBigUInt64LE());
  return { virtualSizeBytes, warnings: [] };
}

/** What was written last may stand in the log alone. Replaying it would write to a file that is not ours. */
async function refuseLog(image: ImageBytes): Promise<void> {
  let newest: Buffer | undefined;
  for (const offset of HEADERS_AT) {
    const header = await readWhole(image, offset, 80, 'header');
    if (header.toString('latin1', 0, 4) !== 'head') continue;
    if (newest === undefined || header.readBigUInt64LE(8) > newest.readBigUInt64LE(8)) newest = header;
  }
  if (newest === undefined) throw new Fault('it has no header');
  if (newest.toString('hex', 48, 64) !== NO_LOG)
    throw new Fault(
      'it was not closed: its log must be replayed first, and nothing is written to it here. Open and close it where it comes from',
    );
}

/** Entries of 32 bytes, by the identifier with which each begins. */
function entriesOf(table: Buffer, start: number, count: number, most: number): Map<string, Buffer> {
  if (count > most || start + count * 32 > table.length) throw new Fault('a table of it is impossibly long');
  const entries = Array.from({ length: count }, (_, index) =>
    table.subarray(start + index * 32, start + (index + 1) * 32),
  );
  return new Map(entries.map(entry => [entry.toString('hex', 0, 16), entry]));
}
