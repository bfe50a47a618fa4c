/**
 * VMDK, as VMware's "Virtual Disk Format 5.0" describes it. QEMU opens what the text inside names, so here is decided, before QEMU sees
 * it, that there is one extent, the file itself.
 *
 * Its `info` says nothing of an image that was cut off: the tables stand at the beginning. The end of the grain that lies farthest
 * tells.
 */
import { SECTOR_BYTES } from '../../disks/index.ts';
import { MAX_TABLES, MAX_VIRTUAL_BYTES } from '../bounds.ts';
import { Fault } from '../fault.ts';
import { exact, type ImageBytes, type Judged, readWhole } from './image.ts';

export const VMDK_MAGIC = 'KDMV';
/** The sector of the grain directory when a footer tells it. */
const AT_END = 0xffff_ffff_ffff_ffffn;
const MARKER_END = 0;
const MARKER_FOOTER = 3;
/** How much QEMU reads of the text, which stands in the second sector. */
const DESCRIPTOR_BYTES = 20 * SECTOR_BYTES;
const HAS_ZERO_GRAINS = 1 << 2;
const HAS_MARKERS = 1 << 17;
const MAX_GRAIN_SECTORS = 32 * 1024;
const MAX_TABLE_ENTRIES = 512;

interface Header {
  flags: number;
  capacitySectors: number;
  grainSectors: number;
  descriptorSector: bigint;
  tableEntries: number;
  directorySector: bigint;
  compressed: boolean;
}

/** @throws Fault */
export async function judgeVmdk(image: ImageBytes): Promise<Judged> {
  const first = parseHeader(await readWhole(image, 0, SECTOR_BYTES, 'header'));
  const header = first.directorySector === AT_END ? await readFooter(image, first) : first;
  if (header.descriptorSector !== 1n) throw new Fault('its description does not follow its header');
  const text = await image.read(SECTOR_BYTES, DESCRIPTOR_BYTES);
  judgeDescriptor(text.toString('latin1'));
  await checkEnd(image, header);
  return { virtualSizeBytes: header.capacitySectors * SECTOR_BYTES, warnings: [] };
}

function parseHeader(block: Buffer): Header {
  if (block.toString('latin1', 0, 4) !== VMDK_MAGIC) throw new Fault('it has no header of a sparse VMDK');
  const header = {
    flags: block.readUInt32LE(8),
    capacitySectors: exact(block.readBigUInt64LE(12)),
    grainSectors: exact(block.readBigUInt64LE(20)),
    descriptorSector: block.readBigUInt64LE(28),
    tableEntries: block.readUInt32LE(44),
    directorySector: block.readBigUInt64LE(56),
    compressed: block.readUInt16LE(77) === 1,
  };
  // QEMU takes the text for the whole image then, and opens what it names
  if (header.capacitySectors === 0) throw new Fault('it has no capacity: its content would be other files');
  if (header.capacitySectors * SECTOR_BYTES > MAX_VIRTUAL_BYTES)
    throw new Fault('its capacity is impossible');
  const { grainSectors, tableEntries } = header;
  if (
    grainSectors < 1 ||
    grainSectors > MAX_GRAIN_SECTORS ||
    tableEntries < 1 ||
    tableEntries > MAX_TABLE_ENTRIES
  )
    throw new Fault('its grains or tables have an impossible size');
  return header;
}

/** A stream's last three sectors: a marker, the header as it became known, the end's marker. */
async function readFooter(image: ImageBytes, first: Header): Promise<Header> {
  const at = image.sizeBytes - 3 * SECTOR_BYTES;
  const cut = 'its footer is missing: it is cut off';
  if (image.sizeBytes % SECTOR_BYTES !== 0 || at < SECTOR_BYTES) throw new Fault(cut);
  const end = await readWhole(image, at, 3 * SECTOR_BYTES, 'footer');
  const markerAt = (offset: number) => ({
    size: end.readUInt32LE(offset + 8),
    type: end.readUInt32LE(offset + 12),
  });
  const [footer, last] = [markerAt(0), markerAt(2 * SECTOR_BYTES)];
  if (footer.size !== 0 || footer.type !== MARKER_FOOTER || last.size !== 0 || last.type !== MARKER_END)
    throw new Fault(cut);
  const header = parseHeader(end.subarray(SECTOR_BYTES, 2 * SECTOR_BYTES));
  const same = (
    ['capacitySectors', 'grainSectors', 'tableEntries', 'descriptorSector', 'compressed'] as const
  ).every(field => header[field] === first[field]);
  if (!same || header.directorySector === AT_END) throw new Fault('its footer contradicts its header');
  return header;
}

function judgeDescriptor(text: string): void {
  const createType = /^[ \t]*createType[ \t]*=[ \t]*"([^"\n]*)"/im.exec(text)?.[1] ?? '';
  if (!['streamoptimized', 'monolithicsparse'].includes(createType.toLowerCase()))
    throw new Fault(`it is of the kind "${createType.slice(0, 50)}", whose content lies in several files`);
  const parent = /^[ \t]*parentCID[ \t]*=[ \t]*(\w+)/im.exec(text)?.[1] ?? 'ffffffff';
  if (/parentFileNameHint/i.test(text) || parent.toLowerCase() !== 'ffffffff')
    throw new Fault('it holds only what differs from another image');
  const extents = [...text.matchAll(/^[ \t]*(?:RW|RDONLY|NOACCESS)[ \t]+\d+[ \t]+(\w+)/gim)];
  if (extents.length !== 1 || extents[0]![1]!.toUpperCase() !== 'SPARSE')
    throw new Fault('its content lies in other files than itself');
}

async function checkEnd(image: ImageBytes, header: Header): Promise<void> {
  const { capacitySectors, grainSectors, tableEntries } = header;
  const count = Math.ceil(capacitySectors / (grainSectors * tableEntries));
  if (count > MAX_TABLES) throw new Fault('its grains or tables have an impossible size');
  const directory = await readSectors(image, exact(header.directorySector), count * 4, 'directory of grains');
  const tables = new Set<number>();
  for (let at = 0; at < directory.length; at += 4) tables.add(directory.readUInt32LE(at));
  // 0: nothing was written there
  tables.delete(0);
  const isZeroGrain = (sector: number) => sector === 1 && (header.flags & HAS_ZERO_GRAINS) !== 0;
  let farthest = 0;
  for (const sector of tables) {
    const table = await readSectors(image, sector, tableEntries * 4, 'table of grains');
    for (let at = 0; at < table.length; at += 4) {
      const grain = table.readUInt32LE(at);
      if (grain > farthest && !isZeroGrain(grain)) farthest = grain;
    }
  }
  if (farthest === 0) return;
  const start = farthest * SECTOR_BYTES;
  const isMarked = header.compressed && (header.flags & HAS_MARKERS) !== 0;
  // before a compressed grain stand its place and the number of its bytes
  const marker = isMarked ? await readSectors(image, farthest, 12, 'last grain') : undefined;
  const bytes = marker ? 12 + marker.readUInt32LE(8) : header.compressed ? 1 : grainSectors * SECTOR_BYTES;
  if (start + bytes > image.sizeBytes)
    throw new Fault(`it is cut off: it has ${image.sizeBytes} bytes, its data reach to ${start + bytes}`);
}

const readSectors = (image: ImageBytes, sector: number, bytes: number, what: string): Promise<Buffer> =>
  readWhole(image, sector * SECTOR_BYTES, bytes, what);
