import { Fault } from '../fault.ts';
import { exact, type ImageBytes, type Judged, readWhole } from './image.ts';

/** Where VirtualBox's signature stands, and what it is. */
export const VDI_SIGNATURE_AT = 0x40;
export const VDI_SIGNATURE = 0xbeda107f;
const VDI_1_1 = 0x10001;
const HEADER_BYTES = 0x1c8;
const NO_IMAGE = Buffer.alloc(16);

/** A VDI as VirtualBox writes it (VDICore.h). QEMU does not notice when one is cut off. @throws Fault */
export async function judgeVdi(image: ImageBytes): Promise<Judged> {
  const header = await readWhole(image, 0, HEADER_BYTES, 'header');
  if (header.readUInt32LE(0x44) !== VDI_1_1) throw new Fault('it is of a version of VDI that is not known');
  const type = header.readUInt32LE(0x4c);
  const hasParent = !header.subarray(0x1b8, 0x1c8).equals(NO_IMAGE);
  // dynamic, fixed
  if ((type !== 1 && type !== 2) || hasParent)
    throw new Fault('it holds only what differs from another image');
  const [dataOffset, blockBytes] = [header.readUInt32LE(0x158), header.readUInt32LE(0x178)];
  const end = dataOffset + blockBytes * header.readUInt32LE(0x184);
  if (end > image.sizeBytes)
    throw new Fault(`it is cut off: it has ${image.sizeBytes} bytes, its data reach to ${end}`);
  return { virtualSizeBytes: exact(header.readBigUInt64LE(0x170)), warnings: [] };
}
