/**
 * A disk image that lies in a pool by itself. What it is says its name, or whoever imports it; its bytes must agree (`appliance/image/`). The
 * bytes of a raw image are its guest's, who may have written there what makes QEMU take it for another format: such a one is refused unless
 * its format was named.
 */
import { stat } from 'node:fs/promises';
import { basename, extname } from 'node:path';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import type { DiskImage } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { type Blockdev, holdSource, type ImageFormat, inspectImage } from '../../appliance/index.ts';
import { changedSource, markSources } from '../../disks/index.ts';

/** As users name them, and as QEMU does. */
const FORMATS = {
  qcow2: 'qcow2',
  raw: 'raw',
  vmdk: 'vmdk',
  vhdx: 'vhdx',
  vhd: 'vpc',
  vdi: 'vdi',
} as const satisfies Record<string, ImageFormat>;
export type DiskFormat = keyof typeof FORMATS;

const BY_FORMAT = new Map<ImageFormat, DiskFormat>(
  Object.entries(FORMATS).map(([name, format]) => [format, name as DiskFormat]),
);
/** Units in which a file system says what a file takes. */
const BLOCK_BYTES = 512;

export interface ForeignImage {
  format: DiskFormat;
  virtualSizeBytes: number;
  /** On its file system. */
  allocatedBytes: number;
  /** For `qemu-img`, while it is open. */
  blockdev: Blockdev;
  warnings: string[];
  /** @throws VirtkeepError foreign_disk_invalid when it was written to since it was opened */
  requireSame(): Promise<void>;
  /** Only when nothing reads of it any more. */
  close(): Promise<void>;
}

/** @throws VirtkeepError invalid_field */
export function requireFormat(format: string): DiskFormat | '' {
  if (format === '' || Object.hasOwn(FORMATS, format)) return format as DiskFormat | '';
  const reason = `must be one of ${Object.keys(FORMATS).join(', ')}`;
  throw new VirtkeepError('invalid_field', { field: 'format', reason });
}

/** What the name of a disk image says; those of `.img` are raw, as everywhere. */
function formatOfName(filename: string): DiskFormat {
  const ending = extname(filename).slice(1).toLowerCase();
  return Object.hasOwn(FORMATS, ending) ? (ending as DiskFormat) : 'raw';
}

/**
 * Opens an image and looks at it.
 * @param named its format as somebody said; empty: its name tells
 * @throws VirtkeepError foreign_disk_invalid, disk_format_contradicted, not_a_file, path_outside_pool, qemu_img_failed, timed_out, io_failed,
 * canceled
 */
export async function openImage(
  path: string,
  named: DiskFormat | '',
  signal: AbortSignal,
): Promise<ForeignImage> {
  const held = await holdSource(path);
  try {
    const marks = await markSources([held.path]);
    const expected = named || formatOfName(path);
    // raw as the name says is no proof: the bytes are asked. Raw as somebody says is raw
    const declared = expected === 'raw' && named === '' ? undefined : FORMATS[expected];
    const image = await inspectImage(held, declared, signal);
    const format = BY_FORMAT.get(image.format)!;
    if (format !== expected)
      throw new VirtkeepError('disk_format_contradicted', { file: basename(path), expected, found: format });
    const { virtualSizeBytes, blockdev, warnings } = image;
    return {
      ...{ format, virtualSizeBytes, blockdev, warnings },
      allocatedBytes: await allocatedBytesOf(held.path),
      async requireSame() {
        if ((await changedSource(marks)) === undefined) return;
        const reason = 'somebody else wrote to it while it was read';
        throw new VirtkeepError('foreign_disk_invalid', { path, reason });
      },
      close: () => held.close(),
    };
  } catch (error) {
    await held.close();
    throw error;
  }
}

async function allocatedBytesOf(path: string): Promise<number> {
  try {
    return (await stat(path)).blocks * BLOCK_BYTES;
  } catch (error) {
    throw fromIoError(error, 'looking at', path);
  }
}

/** What the inventory tells of an image. @throws VirtkeepError as `openImage` */
export async function describeImage(path: string, signal: AbortSignal): Promise<DiskImage> {
  const { format, virtualSizeBytes, allocatedBytes, close } = await openImage(path, '', signal);
  await close();
  return { format, virtualSize: BigInt(virtualSizeBytes), allocatedSize: BigInt(allocatedBytes) };
}
