import { Fault } from '../fault.ts';

/** Formats of images that are taken; `vpc` is what QEMU calls VHD. */
export type ImageFormat = 'vmdk' | 'qcow2' | 'raw' | 'vpc' | 'vhdx' | 'vdi';

/** The bytes of an image, wherever they stand. */
export interface ImageBytes {
  readonly sizeBytes: number;
  /** Fewer bytes only at the end. */
  read(offset: number, lengthBytes: number): Promise<Buffer>;
}

/** What an image's own header says, once it was found harmless. */
export interface Judged {
  virtualSizeBytes: number;
  warnings: string[];
}

/** A piece that must be there whole. @throws Fault */
export async function readWhole(
  image: ImageBytes,
  offset: number,
  lengthBytes: number,
  what: string,
): Promise<Buffer> {
  const end = offset + lengthBytes;
  if (!Number.isSafeInteger(end) || end > image.sizeBytes)
    throw new Fault(`its ${what} lies beyond its end: it is cut off, or damaged`);
  const bytes = await image.read(offset, lengthBytes);
  if (bytes.length < lengthBytes) throw new Fault('it became shorter while it was read');
  return bytes;
}

/** A number of 64 bits as far as numbers are exact; what is larger lies beyond every end and every bound. */
export const exact = (value: bigint): number =>
  value > BigInt(Number.MAX_SAFE_INTEGER) ? Number.POSITIVE_INFINITY : Number(value);
