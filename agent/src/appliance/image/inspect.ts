import { throwIfAborted } from '@virtkeep/shared/abort';
import { readAt } from '@virtkeep/shared/file-bytes';
import { roundUp } from '@virtkeep/shared/units';
import { qemuImg, SECTOR_BYTES } from '../../disks/index.ts';
import { MAX_VIRTUAL_BYTES } from '../bounds.ts';
import { Fault, ofDisk } from '../fault.ts';
import { openSource, type Source } from '../source.ts';
import type { ImageBytes, ImageFormat, Judged } from './image.ts';
import { judgeVhd, judgeVhdx, VHD_MAGIC, VHDX_MAGIC } from './microsoft.ts';
import { judgeQcow2, QCOW2_MAGIC } from './qcow2.ts';
import { judgeVdi, VDI_SIGNATURE, VDI_SIGNATURE_AT } from './vdi.ts';
import { judgeVmdk, VMDK_MAGIC } from './vmdk.ts';

/** A node of QEMU's block layer as JSON: every driver is named, so that QEMU guesses nothing. */
export type Blockdev = Readonly<Record<string, unknown>>;

export interface InspectedImage {
  format: ImageFormat;
  /** Bytes the guest sees. */
  virtualSizeBytes: number;
  /** For `qemu-img`, as `json:` and this. Nothing is written to the file. */
  blockdev: Blockdev;
  warnings: string[];
}

/**
 * Looks whether a foreign image is one that QEMU may be given: it is all of the disk itself, and names no other file. Our own reading
 * of the header comes first; QEMU, told the format, must then agree.
 * @param declared what the descriptor says it is; undefined when it says nothing that is known
 * @throws VirtkeepError foreign_disk_invalid, not_a_file, qemu_img_failed, timed_out, io_failed, canceled
 */
export function inspectImage(
  source: Source,
  declared: ImageFormat | undefined,
  signal: AbortSignal,
): Promise<InspectedImage> {
  return ofDisk(source.name, async () => {
    throwIfAborted(signal);
    const file = await openSource(source);
    try {
      const { size: fileBytes } = await file.stat();
      const { offset, sizeBytes } = source;
      if (sizeBytes === 0) throw new Fault('it is empty');
      if (offset + sizeBytes > fileBytes) throw new Fault('it is cut off');
      const image: ImageBytes = {
        sizeBytes,
        read: (at, length) => {
          throwIfAborted(signal);
          return readAt(file, offset + at, Math.max(0, Math.min(length, sizeBytes - at)));
        },
      };
      const { format, contradicts } = await formatOf(image, declared);
      const { virtualSizeBytes, warnings } = await JUDGES[format](image);
      if (virtualSizeBytes <= 0 || virtualSizeBytes > MAX_VIRTUAL_BYTES)
        throw new Fault(`its size of ${virtualSizeBytes} bytes is impossible`);
      const blockdev = blockdevOf(source, format, fileBytes);
      await askQemu(blockdev, format, virtualSizeBytes, signal);
      const texts = contradicts ? [`is declared as ${declared} and is ${format}`, ...warnings] : warnings;
      return { format, virtualSizeBytes, blockdev, warnings: texts.map(text => `"${source.name}" ${text}.`) };
    } finally {
      await file.close();
    }
  });
}

const judgeRaw = (image: ImageBytes): Promise<Judged> =>
  Promise.resolve({ virtualSizeBytes: roundUp(image.sizeBytes, SECTOR_BYTES), warnings: [] });

const JUDGES: Record<ImageFormat, (image: ImageBytes) => Promise<Judged>> = {
  vmdk: judgeVmdk,
  qcow2: judgeQcow2,
  vpc: judgeVhd,
  vhdx: judgeVhdx,
  vdi: judgeVdi,
  raw: judgeRaw,
};

/** Beginnings of what is no image of a disk, and what it is. */
const NO_IMAGES: [string, string][] = [
  ['# Disk DescriptorFile', 'it is only the text of a VMDK, whose content lies in other files'],
  ['COWD', 'it is one of several files of a VMDK'],
  ['\x1f\x8b', 'it is compressed with gzip, which its descriptor does not say'],
  ['\xfd7zXZ\0', 'it is compressed with xz'],
  ['PK\x03\x04', 'it is a zip'],
  ['(\xb5/\xfd', 'it is compressed with zstd'],
];

/**
 * By what the bytes say. A disk that is declared raw is raw: its first bytes are the guest's.
 * @throws Fault when it is no image, or none of the format that is declared
 */
async function formatOf(
  image: ImageBytes,
  declared: ImageFormat | undefined,
): Promise<{ format: ImageFormat; contradicts: boolean }> {
  if (declared === 'raw') return { format: 'raw', contradicts: false };
  const head = await image.read(0, SECTOR_BYTES);
  const text = head.toString('latin1');
  const no = NO_IMAGES.find(([start]) => text.startsWith(start));
  if (no !== undefined) throw new Fault(no[1]);
  const found = magicOf(
    head,
    text,
    await image.read(Math.max(0, image.sizeBytes - SECTOR_BYTES), SECTOR_BYTES),
  );
  if (found === undefined && declared !== undefined)
    throw new Fault(`it is declared as ${declared}, and is no such image`);
  return { format: found ?? 'raw', contradicts: declared !== undefined && found !== declared };
}

function magicOf(head: Buffer, text: string, tail: Buffer): ImageFormat | undefined {
  if (text.startsWith(VMDK_MAGIC)) return 'vmdk';
  if (text.startsWith(QCOW2_MAGIC)) return 'qcow2';
  if (text.startsWith(VHDX_MAGIC)) return 'vhdx';
  if (head.length >= SECTOR_BYTES && head.readUInt32LE(VDI_SIGNATURE_AT) === VDI_SIGNATURE) return 'vdi';
  // a fixed one begins with the guest's own bytes
  if (text.startsWith(VHD_MAGIC) || tail.toString('latin1', 0, 8) === VHD_MAGIC) return 'vpc';
  return undefined;
}

/** What keeps a driver from opening more than it is given, and from losing a disk's end. */
const EXTRA: Partial<Record<ImageFormat, Record<string, unknown>>> = {
  vmdk: { backing: null },
  qcow2: { backing: null },
  // the geometry, which QEMU trusts with some writers, is rounded down
  vpc: { force_size_calc: 'current_size' },
};

function blockdevOf({ path, offset, sizeBytes }: Source, format: ImageFormat, fileBytes: number): Blockdev {
  const file = { driver: 'file', filename: path };
  // QEMU counts in sectors; a tar fills its last one
  const size = roundUp(sizeBytes, SECTOR_BYTES);
  const isWhole = offset === 0 && sizeBytes === fileBytes;
  if (!isWhole && offset + size > fileBytes) throw new Fault('it is cut off');
  const range = { driver: 'raw', ...(isWhole ? {} : { offset, size }), 'read-only': true, file };
  if (format === 'raw') return range;
  return { driver: format, ...EXTRA[format], 'read-only': true, file: range };
}

const INFO_MS = 60_000;
/** @throws Fault when QEMU sees another image than we do; VirtkeepError qemu_img_failed when it sees none */
async function askQemu(
  blockdev: Blockdev,
  format: ImageFormat,
  virtualSizeBytes: number,
  signal: AbortSignal,
): Promise<void> {
  const image = `json:${JSON.stringify(blockdev)}`;
  const text = await qemuImg('info', ['--output=json', '-U', image], {
    signal,
    untrusted: true,
    timeoutMs: INFO_MS,
  });
  const info = JSON.parse(text) as Record<string, unknown>;
  if (info.format !== format || info['virtual-size'] !== virtualSizeBytes)
    throw new Fault(`qemu-img takes it for ${info.format} of ${info['virtual-size']} bytes`);
  if ('backing-filename' in info || 'full-backing-filename' in info)
    throw new Fault('it stands on another image');
  if (format === 'vmdk') checkExtents(info, blockdev);
}

interface VmdkInfo {
  'create-type'?: string;
  extents?: { filename?: string }[];
}

/** Its one extent must be the file that we gave it. */
function checkExtents(info: Record<string, unknown>, blockdev: Blockdev): void {
  const { data } = (info['format-specific'] ?? {}) as { data?: VmdkInfo };
  const { extents = [], 'create-type': kind = '' } = data ?? {};
  const own = JSON.stringify((blockdev.file as { file: { filename: string } }).file.filename);
  const name = extents[0]?.filename ?? '';
  const isOwn = name.startsWith('json:') ? name.includes(own) : JSON.stringify(name) === own;
  if (extents.length !== 1 || !isOwn || !['streamOptimized', 'monolithicSparse'].includes(kind))
    throw new Fault('qemu-img finds other files in it');
}
