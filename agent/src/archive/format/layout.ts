/** The numbers of the format; a module without imports, because worker threads pay for each. */

/** Unit of a tar. */
export const TAR_BLOCK = 512;
/** Data of big members starts at a multiple of this, so that it can be reflinked, read with O_DIRECT and booted. */
export const DATA_ALIGN = 4096;
/** Two zero blocks end a tar. */
export const END_BYTES = 2 * TAR_BLOCK;
/** Bytes of member data in one block: one zstd frame, one slot of the ring. */
export const BLOCK_BYTES = 4 * 1024 * 1024;
/** Room for a compressed block: ZSTD_compressBound(4 MiB) is 4 MiB + 16 KiB. */
export const COMPRESSED_ROOM = BLOCK_BYTES + 64 * 1024;

/** Rounds up to the next multiple. */
export const roundUp = (value: number, multiple: number): number => Math.ceil(value / multiple) * multiple;

/** Bytes of block `index` of a member. */
export const blockLength = (lengthBytes: number, index: number): number =>
  Math.min(BLOCK_BYTES, lengthBytes - index * BLOCK_BYTES);

/** The same with the tar's padding, which belongs to the last block's frame. */
export const paddedBlockLength = (lengthBytes: number, index: number): number =>
  roundUp(blockLength(lengthBytes, index), TAR_BLOCK);
