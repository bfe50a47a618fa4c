/**
 * The seek table of the zstd seekable format (zstd/contrib/seekable_format), a skippable frame at the end of the
 * file that every decoder ignores: per frame its compressed size, its uncompressed size and the low 32 bits of the
 * XXH64 of its content, which are also the last four bytes of a frame with a checksum.
 */
const SKIPPABLE_MAGIC = 0x184d2a5e;
const SEEKABLE_MAGIC = 0x8f92eab1;
const CHECKSUM_FLAG = 0x80;
const RESERVED_BITS = 0x7c;
const HEADER_BYTES = 8;
export const SEEK_FOOTER_BYTES = 9;
const ENTRY_BYTES = 12;

/** So much of a frame tells whether it has a checksum: its magic number and its descriptor (RFC 8878, 3.1.1). */
export const FRAME_START_BYTES = 5;
const FRAME_MAGIC = 0xfd2fb528;
const CONTENT_CHECKSUM_BIT = 0x04;

/** Whether the frame that begins so ends with a checksum of its content. */
export function hasChecksum(start: Buffer): boolean {
  if (start.length < FRAME_START_BYTES || start.readUInt32LE(0) !== FRAME_MAGIC) return false;
  return (start[4]! & CONTENT_CHECKSUM_BIT) !== 0;
}

/** Whether a skippable frame begins so, which holds no content. */
export const isSkippable = (start: Buffer): boolean =>
  start.length >= 4 && (start.readUInt32LE(0) & 0xfffffff0) >>> 0 === 0x184d2a50;

/** Frames of a file being written. Grows by doubling: 12 bytes a frame, 3 MiB for a TiB. */
export class FrameList {
  #entries = new Uint32Array(3 * 256);
  #count = 0;

  /** The frames of an existing file, from the bytes of their entries (a multiple of 12). */
  static of(entries: Uint8Array): FrameList {
    const list = new FrameList();
    const view = new DataView(entries.buffer, entries.byteOffset, entries.byteLength);
    for (let at = 0; at < entries.byteLength; at += ENTRY_BYTES)
      list.add(view.getUint32(at, true), view.getUint32(at + 4, true), view.getUint32(at + 8, true));
    return list;
  }

  get count(): number {
    return this.#count;
  }

  add(compressedBytes: number, rawBytes: number, checksum: number): void {
    if ((this.#count + 1) * 3 > this.#entries.length) {
      const larger = new Uint32Array(this.#entries.length * 2);
      larger.set(this.#entries);
      this.#entries = larger;
    }
    this.#entries.set([compressedBytes, rawBytes, checksum], this.#count * 3);
    this.#count++;
  }

  /** The skippable frame. */
  encode(): Buffer {
    const bodyBytes = this.#count * ENTRY_BYTES + SEEK_FOOTER_BYTES;
    const table = Buffer.alloc(HEADER_BYTES + bodyBytes);
    table.writeUInt32LE(SKIPPABLE_MAGIC, 0);
    table.writeUInt32LE(bodyBytes, 4);
    for (let index = 0; index < this.#count * 3; index++)
      table.writeUInt32LE(this.#entries[index]!, HEADER_BYTES + index * 4);
    table.writeUInt32LE(this.#count, table.length - 9);
    table[table.length - 5] = CHECKSUM_FLAG;
    table.writeUInt32LE(SEEKABLE_MAGIC, table.length - 4);
    return table;
  }
}

/**
 * The entries of the first `frameCount` frames, out of a whole seek table as it stands in a file; undefined when it
 * has no checksums, as ours have.
 */
export function entriesOf(table: Buffer, frameCount: number): Buffer | undefined {
  const checksums = (table[table.length - 5]! & CHECKSUM_FLAG) !== 0;
  return checksums ? table.subarray(HEADER_BYTES, HEADER_BYTES + frameCount * ENTRY_BYTES) : undefined;
}

/** Frame i lies at fileOffsets[i]..[i+1] in the file and holds rawOffsets[i]..[i+1] of the tar. */
export interface SeekTable {
  frameCount: number;
  fileOffsets: Float64Array;
  rawOffsets: Float64Array;
  /** Low halves of the contents' XXH64, when the table has them. */
  checksums?: Uint32Array;
}

/** Size of the seek table in bytes as its footer says, or undefined when the bytes are no such footer. */
export function seekTableBytes(footer: Buffer): number | undefined {
  if (footer.length !== SEEK_FOOTER_BYTES || footer.readUInt32LE(5) !== SEEKABLE_MAGIC) return undefined;
  const descriptor = footer[4]!;
  if ((descriptor & RESERVED_BITS) !== 0) return undefined;
  const entryBytes = (descriptor & CHECKSUM_FLAG) === 0 ? 8 : ENTRY_BYTES;
  return HEADER_BYTES + footer.readUInt32LE(0) * entryBytes + SEEK_FOOTER_BYTES;
}

/** So much of a table is in memory at a time while it is read. */
const PIECE_ENTRIES = 64 * 1024;

/**
 * Reads the seek table at the end of a file, or says what is wrong: it must account for every byte of the file before it, in
 * frames that can be frames. All of it is looked through before memory is taken for it, so that a small file that claims millions of
 * frames costs none.
 * @param readAt reads from the file; fewer bytes only at its end
 * @param tableBytes what the footer says
 */
export async function readSeekTable(
  readAt: (offset: number, lengthBytes: number) => Promise<Buffer>,
  tableBytes: number,
  fileBytes: number,
): Promise<SeekTable | string> {
  const start = fileBytes - tableBytes;
  const footer = await readAt(fileBytes - SEEK_FOOTER_BYTES, SEEK_FOOTER_BYTES);
  const header = await readAt(start, HEADER_BYTES);
  const isTorn =
    seekTableBytes(footer) !== tableBytes ||
    header.length !== HEADER_BYTES ||
    header.readUInt32LE(0) !== SKIPPABLE_MAGIC ||
    header.readUInt32LE(4) !== tableBytes - HEADER_BYTES;
  if (isTorn) return 'its seek table is torn';
  const frameCount = footer.readUInt32LE(0);
  const hasChecksums = (footer[4]! & CHECKSUM_FLAG) !== 0;
  const entryBytes = hasChecksums ? ENTRY_BYTES : ENTRY_BYTES - 4;

  async function* pieces(): AsyncGenerator<Buffer> {
    for (let done = 0; done < frameCount; done += PIECE_ENTRIES) {
      const lengthBytes = Math.min(PIECE_ENTRIES, frameCount - done) * entryBytes;
      yield await readAt(start + HEADER_BYTES + done * entryBytes, lengthBytes);
    }
  }

  let [compressedBytes, rawBytes] = [0, 0];
  for await (const piece of pieces())
    for (let at = 0; at + entryBytes <= piece.length; at += entryBytes) {
      const frameBytes = piece.readUInt32LE(at);
      if (frameBytes < FRAME_START_BYTES) return 'its seek table has a frame that is none';
      compressedBytes += frameBytes;
      rawBytes += piece.readUInt32LE(at + 4);
    }
  if (compressedBytes !== start)
    return 'its seek table does not fit the file: the file is truncated or was changed';
  if (!Number.isSafeInteger(rawBytes)) return 'its seek table claims an impossible size';

  const fileOffsets = new Float64Array(frameCount + 1);
  const rawOffsets = new Float64Array(frameCount + 1);
  const checksums = hasChecksums ? new Uint32Array(frameCount) : undefined;
  let index = 0;
  for await (const piece of pieces())
    for (let at = 0; at + entryBytes <= piece.length; at += entryBytes, index++) {
      fileOffsets[index + 1] = fileOffsets[index]! + piece.readUInt32LE(at);
      rawOffsets[index + 1] = rawOffsets[index]! + piece.readUInt32LE(at + 4);
      if (checksums !== undefined) checksums[index] = piece.readUInt32LE(at + 8);
    }
  if (fileOffsets[frameCount] !== start) return 'its seek table was changed while it was read';
  return { frameCount, fileOffsets, rawOffsets, ...(checksums && { checksums }) };
}

/** Index of the frame that holds byte `rawOffset` of the tar, or -1 when none does. */
export function frameAt(table: SeekTable, rawOffset: number): number {
  let low = 0;
  let high = table.frameCount;
  if (rawOffset < 0 || rawOffset >= table.rawOffsets[high]!) return -1;
  while (high - low > 1) {
    const middle = (low + high) >>> 1;
    if (table.rawOffsets[middle]! <= rawOffset) low = middle;
    else high = middle;
  }
  return low;
}
