/** How much of the disk a member takes when it is extracted, told without reading it. */

import { BLOCK_BYTES, DATA_ALIGN, roundUp } from '../format/layout.ts';
import { frameAt, type SeekTable } from '../format/seek-table.ts';
import type { ArchiveMember } from '../format/types.ts';
import { nextDataAside, nextHoleAside } from '../system/syscalls.ts';
import { Compressor, DEFAULT_LEVEL } from '../threads/codec.ts';
import type { Access } from './inspect.ts';
import { framesOf } from './member-frames.ts';

/** Above this no frame is a block of zeros. */
const MAX_ZERO_FRAME_BYTES = 1024;

/** Most bytes that are written of a member: without the holes of the file, or the blocks of zeros of its seek table. */
export async function mostWritten(fd: number, access: Access, member: ArchiveMember): Promise<number> {
  const { dataOffset, sizeBytes } = member;
  if (access.kind === 'stream') return sizeBytes;
  if (access.kind === 'plain') return dataWithin(fd, dataOffset, dataOffset + sizeBytes);
  return Math.max(0, sizeBytes - zeroBytes(access.table, member));
}

async function dataWithin(fd: number, start: number, end: number): Promise<number> {
  let bytes = 0;
  for (let at = start; at < end; ) {
    const data = await nextDataAside(fd, at);
    if (data >= end) break;
    const hole = Math.min(await nextHoleAside(fd, data), end);
    bytes += roundUp(hole, DATA_ALIGN) - (data - (data % DATA_ALIGN));
    at = Math.max(hole, data + 1);
  }
  return bytes;
}

/** Bytes of a member in whole blocks of zeros, which are recognised by the checksum of their content. */
function zeroBytes(table: SeekTable, { dataOffset, sizeBytes }: ArchiveMember): number {
  const { checksums, fileOffsets } = table;
  if (checksums === undefined || framesOf(table, dataOffset, sizeBytes) === undefined) return 0;
  const first = frameAt(table, dataOffset);
  let blocks = 0;
  for (let index = 0; index < Math.floor(sizeBytes / BLOCK_BYTES); index++) {
    const frame = first + index;
    const isSmall = fileOffsets[frame + 1]! - fileOffsets[frame]! <= MAX_ZERO_FRAME_BYTES;
    if (isSmall && checksums[frame] === zeroChecksum()) blocks++;
  }
  return blocks * BLOCK_BYTES;
}

let knownChecksum: number | undefined;

/** Of a block of zeros: the last four bytes of its frame, whatever the level. */
function zeroChecksum(): number {
  if (knownChecksum !== undefined) return knownChecksum;
  const frame = Buffer.alloc(MAX_ZERO_FRAME_BYTES);
  const length = new Compressor(DEFAULT_LEVEL).frame(frame, Buffer.alloc(BLOCK_BYTES));
  knownChecksum = frame.readUInt32LE(length - 4);
  return knownChecksum;
}
