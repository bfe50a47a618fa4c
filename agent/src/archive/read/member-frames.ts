import { BLOCK_BYTES, paddedBlockLength } from '../format/layout.ts';
import { frameAt, type SeekTable } from '../format/seek-table.ts';

/**
 * Offset and size in the file of each frame of a member's data, in turn, in shared memory for the threads; undefined
 * when the frames do not hold one block of it each, as ours do.
 */
export function framesOf(table: SeekTable, dataOffset: number, sizeBytes: number): Float64Array | undefined {
  const blockCount = Math.ceil(sizeBytes / BLOCK_BYTES);
  const first = blockCount === 0 ? 0 : frameAt(table, dataOffset);
  if (first < 0 || first + blockCount > table.frameCount) return undefined;
  const frames = new Float64Array(new SharedArrayBuffer(blockCount * 16));
  for (let index = 0; index < blockCount; index++) {
    const frame = first + index;
    const rawBytes = table.rawOffsets[frame + 1]! - table.rawOffsets[frame]!;
    const fits = table.rawOffsets[frame] === dataOffset + index * BLOCK_BYTES;
    if (!fits || rawBytes !== paddedBlockLength(sizeBytes, index)) return undefined;
    frames[2 * index] = table.fileOffsets[frame]!;
    frames[2 * index + 1] = table.fileOffsets[frame + 1]! - table.fileOffsets[frame]!;
  }
  return frames;
}
