/** The header of a file of virtnbdbackup's with the data of a disk: one frame of JSON at its beginning. */
import type { FileHandle } from 'node:fs/promises';
import { readAt } from '@virtkeep/shared/file-bytes';
import { KiB, MiB } from '@virtkeep/shared/units';
import { MAX_VIRTUAL_BYTES } from '../bounds.ts';
import { Fault, shown } from '../fault.ts';

export interface StreamHeader {
  /** Of the disk, as the guest sees it. */
  virtualSizeBytes: number;
  /** Uncompressed data in the file. */
  dataBytes: number;
  checkpoint: string;
  /** Checkpoint since when the data changed; empty: all of the disk. */
  parent: string;
  /** Its time has no zone: that of this node is taken. */
  written: Date;
}

/** `meta <start> <length>\r\n`, numbers of 16 hexadecimal digits. */
const FRAME = /^meta [0-9a-f]{16} ([0-9a-f]{16})\r\n$/;
const FRAME_BYTES = 40;
/** How a frame of lz4 begins; the next byte are its flags. */
const LZ4_MAGIC = 0x184d2204;
/** Of the flags: version 1, the reserved bit, which is 0, and that the frame says two bytes later how many bytes it holds. */
const LZ4_SIZED = { mask: 0b1100_1010, value: 0b0100_1000 };
const LZ4_SIZE_AT = 6;
const LZ4_HEADER_BYTES = 15;
/** virtnbdbackup reads at most so much of a disk at a time. */
const MAX_PIECE_BYTES = 32 * MiB;
const SECTOR_BYTES = 512;
/** Before this there is something on every disk in use: a table of partitions, a header, a file system. */
const LOOKED_AT_BYTES = 16 * MiB;
const MAX_JSON_BYTES = 64 * KiB;
const CHECKPOINT = /^virtnbdbackup\.\d{1,6}$/;

/**
 * What virtnbdrestore makes file names and arguments of is checked here, since it does not itself.
 * @param target of the disk, as the file is named
 * @returns undefined: the file is no stream, but the bytes of a raw disk
 * @throws Fault
 */
export async function readStreamHeader(file: FileHandle, target: string): Promise<StreamHeader | undefined> {
  const frame = (await readAt(file, 0, FRAME_BYTES)).toString('latin1');
  if (!frame.startsWith('meta ')) {
    await refusePacked(file);
    return undefined;
  }
  const length = Number.parseInt(FRAME.exec(frame)?.[1] ?? '', 16);
  if (!(length > 0 && length <= MAX_JSON_BYTES)) throw new Fault('its header has an impossible length');
  const bytes = await readAt(file, FRAME_BYTES, length);
  if (bytes.length < length) throw new Fault('it is cut off');
  return headerOf(parsed(bytes), target);
}

/**
 * With --compress and --raw virtnbdbackup 2.28 writes each piece of a raw disk packed to where it lies on the disk, over the end of one
 * before that became longer by it, and virtnbdrestore copies that as it is. 1.9 did not pack it.
 * @throws Fault
 */
async function refusePacked(file: FileHandle): Promise<void> {
  const at = await firstByte(file);
  if (at % SECTOR_BYTES !== 0 || !isPackedPiece(await readAt(file, at, LZ4_HEADER_BYTES))) return;
  throw new Fault(
    'virtnbdbackup has packed this raw disk in a way that it cannot restore itself; back the VM up without --compress',
  );
}

/** Where the first byte is that is not 0; the end of what is looked at when there is none. */
async function firstByte(file: FileHandle): Promise<number> {
  for (let offset = 0; offset < LOOKED_AT_BYTES; offset += MiB) {
    const bytes = await readAt(file, offset, MiB);
    if (bytes.length === 0) break;
    if (!bytes.equals(Buffer.alloc(bytes.length))) return offset + bytes.findIndex(byte => byte !== 0);
  }
  return LOOKED_AT_BYTES;
}

function isPackedPiece(header: Buffer): boolean {
  if (header.length < LZ4_HEADER_BYTES || header.readUInt32LE(0) !== LZ4_MAGIC) return false;
  if ((header[4]! & LZ4_SIZED.mask) !== LZ4_SIZED.value) return false;
  const bytes = header.readBigUInt64LE(LZ4_SIZE_AT);
  return bytes > 0n && bytes <= MAX_PIECE_BYTES && bytes % BigInt(SECTOR_BYTES) === 0n;
}

function parsed(bytes: Buffer): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>;
  } catch {
    // as below
  }
  throw new Fault('its header is no JSON');
}

function headerOf(meta: Record<string, unknown>, target: string): StreamHeader {
  const { diskName, diskFormat, virtualSize, dataSize, checkpointName, parentCheckpoint: parent } = meta;
  const { compressed, compressionMethod, date } = meta;
  const say = (value: unknown) => shown(String(value));
  if (diskName !== target) throw new Fault(`its header is of the disk ${say(diskName)}`);
  if (diskFormat !== 'qcow2') throw new Fault(`its disk is of the format ${say(diskFormat)}`);
  if (!isCount(virtualSize) || virtualSize === 0 || virtualSize > MAX_VIRTUAL_BYTES)
    throw new Fault(`its disk has the impossible size ${say(virtualSize)}`);
  if (!isCount(dataSize) || dataSize > virtualSize)
    throw new Fault(`it has the impossible length ${say(dataSize)} of data`);
  if (!isCheckpoint(checkpointName)) throw new Fault(`its checkpoint is ${say(checkpointName)}`);
  const isFirst = parent === '' || parent === null || parent === undefined || parent === false;
  if (!isFirst && !isCheckpoint(parent)) throw new Fault(`its checkpoint before is ${say(parent)}`);
  const version = meta.streamVersion ?? meta['stream-version'];
  if (version !== 1 && version !== 2) throw new Fault(`it is of the version ${say(version)}`);
  const isPlain = compressed === false || compressed === undefined;
  if (!isPlain && compressionMethod !== 'lz4') throw new Fault(`it is packed with ${say(compressionMethod)}`);
  const written = new Date(typeof date === 'string' ? date : Number.NaN);
  if (Number.isNaN(written.getTime())) throw new Fault(`it was written at ${say(date)}`);
  return {
    virtualSizeBytes: virtualSize,
    dataBytes: dataSize,
    checkpoint: checkpointName,
    parent: isFirst ? '' : parent,
    written,
  };
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const isCheckpoint = (value: unknown): value is string => typeof value === 'string' && CHECKPOINT.test(value);
