import { parentPort, workerData } from 'node:worker_threads';
import { BLOCK_BYTES, blockLength, COMPRESSED_ROOM, paddedBlockLength } from '../format/layout.ts';
import { willNeed } from '../system/syscalls.ts';
import {
  type BlockSource,
  HoleFinder,
  nonZeroRanges,
  READ_AHEAD_BLOCKS,
  readFully,
  readRanges,
} from './block-source.ts';
import { Compressor, Decompressor } from './codec.ts';
import { canceledFault, FaultError, faultOf } from './fault.ts';
import { type BlockResult, Ring, type RingMemory } from './ring.ts';

/** What a run does to each block. */
export type Codec =
  | { kind: 'store' }
  | { kind: 'compress'; level: number }
  /** Offset and size in the file of each block's frame, in turn. */
  | { kind: 'decompress'; frames: Float64Array }
  /** The same, whose frames are checked and go out as they are. */
  | { kind: 'carry'; frames: Float64Array };

export interface BlockRun {
  source: BlockSource;
  codec: Codec;
  blockCount: number;
}

/** Fills one block's slot. */
type Fill = (index: number, raw: Buffer, compressed: Buffer) => BlockResult;

const ZERO: BlockResult = { zero: true, compressedBytes: 0, ranges: [] };
const ring = new Ring(workerData as RingMemory);
const decompressor = new Decompressor();
let compressor: { level: number; use: Compressor } | undefined;

/** Reads a block's data; undefined when it is all zeros. */
function reader(run: BlockRun): (index: number, raw: Buffer) => BlockResult['ranges'] | undefined {
  const holes = new HoleFinder(run.source);
  return (index, raw) => {
    const ranges = holes.ranges(index);
    if (ranges.length === 0) return undefined;
    if (!ring.spend(ranges.reduce((sum, { start, end }) => sum + end - start, 0))) throw canceledFault();
    const length = blockLength(run.source.lengthBytes, index);
    const partial = ranges.length > 1 || ranges[0]!.end - ranges[0]!.start < length;
    if (partial) raw.fill(0, 0, length);
    readRanges(run.source, index, { ranges, into: raw, pieceBytes: ring.pieceBytes });
    return raw.subarray(0, length).equals(ring.zeros.subarray(0, length)) ? undefined : ranges;
  };
}

function storing(run: BlockRun): Fill {
  const read = reader(run);
  return (index, raw) => {
    const ranges = read(index, raw);
    return ranges === undefined ? ZERO : { zero: false, compressedBytes: 0, ranges };
  };
}

function compressing(run: BlockRun, level: number): Fill {
  const read = reader(run);
  if (compressor?.level !== level) compressor = { level, use: new Compressor(level) };
  const { use } = compressor;
  return (index, raw, compressed) => {
    const ranges = read(index, raw);
    const length = blockLength(run.source.lengthBytes, index);
    if (ranges === undefined && length === BLOCK_BYTES) return ZERO;
    const padded = paddedBlockLength(run.source.lengthBytes, index);
    raw.fill(0, ranges === undefined ? 0 : length, padded);
    const compressedBytes = use.frame(compressed, raw.subarray(0, padded));
    return { zero: false, compressedBytes, ranges: ranges ?? [] };
  };
}

function decompressing(run: BlockRun, frames: Float64Array): Fill {
  return (index, raw, compressed) => {
    const sizeBytes = frames[2 * index + 1]!;
    if (sizeBytes > COMPRESSED_ROOM)
      throw new FaultError({ kind: 'corrupt', reason: 'a zstd frame is larger than its content allows' });
    const bytes = compressed.subarray(0, sizeBytes);
    const ahead = 2 * (index + READ_AHEAD_BLOCKS);
    if (ahead < frames.length) willNeed(run.source.fd, frames[ahead]!, frames[ahead + 1]!);
    readFully(run.source.fd, bytes, frames[2 * index]!);
    decompressor.frame(raw.subarray(0, paddedBlockLength(run.source.lengthBytes, index)), bytes);
    const ranges = nonZeroRanges(raw.subarray(0, blockLength(run.source.lengthBytes, index)), ring.zeros);
    return { zero: ranges.length === 0, compressedBytes: 0, ranges };
  };
}

function carrying(run: BlockRun, frames: Float64Array): Fill {
  const check = decompressing(run, frames);
  return (index, raw, compressed) => {
    const { zero, ranges } = check(index, raw, compressed);
    const isWhole = blockLength(run.source.lengthBytes, index) === BLOCK_BYTES;
    return { zero: zero && isWhole, compressedBytes: frames[2 * index + 1]!, ranges };
  };
}

function fillOf(run: BlockRun): Fill {
  switch (run.codec.kind) {
    case 'store':
      return storing(run);
    case 'compress':
      return compressing(run, run.codec.level);
    case 'decompress':
      return decompressing(run, run.codec.frames);
    case 'carry':
      return carrying(run, run.codec.frames);
  }
}

function work(run: BlockRun): void {
  const fill = fillOf(run);
  for (let index = ring.claim(); index < run.blockCount; index = ring.claim()) {
    if (!ring.waitToFill(index)) throw canceledFault();
    const slot = index % ring.slots;
    ring.publish(index, fill(index, ring.raw(slot), ring.compressed(slot)));
  }
}

parentPort!.on('message', (run: BlockRun) => {
  try {
    work(run);
    parentPort!.postMessage({ done: true });
  } catch (error) {
    parentPort!.postMessage({ fault: faultOf(error) });
  }
});
parentPort!.postMessage({ loaded: true });
