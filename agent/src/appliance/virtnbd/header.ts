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
/** Of the flags: version 1, a bit that is none, and that the frame says how many bytes it holds, which it does two bytes later. */
const LZ4_SIZED = { mask: 0b1100_1010, value: 0b0100_1000 };
const LZ4_SIZE_AT = 6;
/** Of which the tool's pieces of a disk are at most. */
const MAX_PIECE_BYTES = 32 * MiB;
const MAX_JSON_BYTES = 64 * KiB;
const CHECKPOINT = /^virtnbdbackup\.\d{1,6}$/;

/**
 * What virtnbdrestore makes file names and arguments of is checked here, since it does not itself.
 * @param target of the disk, as the file is named
 * @returns undefined: the file is no stream, but the bytes of a raw disk
 * @throws Fault
 */
export async function readStreamHeader(file: FileHandle, target: string): Promise<StreamHeader | undefined> {
  const beginning = await readAt(file, 0, FRAME_BYTES);
  if (isPackedPiece(beginning))
    throw new Fault(
      'virtnbdbackup has packed this raw disk, which it cannot restore itself: a piece that grew by it lost its end; back it up without --compress',
    );
  const frame = beginning.toString('latin1');
  if (!frame.startsWith('meta ')) return undefined;
  const length = Number.parseInt(FRAME.exec(frame)?.[1] ?? '', 16);
  if (!(length > 0 && length <= MAX_JSON_BYTES)) throw new Fault('its header has an impossible length');
  const bytes = await readAt(file, FRAME_BYTES, length);
  if (bytes.length < length) throw new Fault('it is cut off');
  return headerOf(parsed(bytes), target);
}

/**
 * With --compress and --raw virtnbdbackup 2.28 writes each piece of a raw disk packed to where it lies on the disk, and virtnbdrestore copies
 * that as it is; 1.9 did not pack it.
 */
function isPackedPiece(beginning: Buffer): boolean {
  if (beginning.length < FRAME_BYTES || beginning.readUInt32LE(0) !== LZ4_MAGIC) return false;
  if ((beginning[4]! & LZ4_SIZED.mask) !== LZ4_SIZED.value) return false;
  const bytes = beginning.readBigUInt64LE(LZ4_SIZE_AT);
  return bytes > 0n && bytes <= MAX_PIECE_BYTES && bytes % 512n === 0n;
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
