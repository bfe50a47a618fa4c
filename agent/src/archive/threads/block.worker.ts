import { parentPort, workerData } from 'node:worker_threads';
import { BLOCK_BYTES, blockLength, COMPRESSED_ROOM, paddedBlockLength } from '../format/layout.ts';
import { AsyncReader } from '../system/async-read.ts';
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
import { type BlockResult, type Range, Ring, type RingMemory } from './ring.ts';

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
  /** The sequencer needs what was read. */
  hash: boolean;
}

/** Fills one block's slot. */
type Fill = (index: number) => BlockResult;

/** Undefined: the block is all zeros. */
type Read = Range[] | undefined;

const ZERO: BlockResult = { zero: true, compressedBytes: 0, ranges: [] };
const ring = new Ring(workerData as RingMemory);
const decompressor = new Decompressor();
let compressor: { level: number; use: Compressor } | undefined;

const isWhole = (ranges: readonly Range[], length: number) =>
  ranges.length === 1 && ranges[0]!.end - ranges[0]!.start >= length;

const isZero = (raw: Buffer, length: number) =>
  raw.subarray(0, length).equals(ring.zeros.subarray(0, length));

/** Reads a block's data. @param readsAhead as of `readRanges` */
function readBlock({ source }: BlockRun, index: number, ranges: Range[], readsAhead = true): Read {
  if (ranges.length === 0) return undefined;
  if (!ring.spend(ranges.reduce((sum, { start, end }) => sum + end - start, 0))) throw canceledFault();
  const raw = ring.raw(index);
  const length = blockLength(source.lengthBytes, index);
  if (!isWhole(ranges, length)) raw.fill(0, 0, length);
  readRanges(source, index, { ranges, into: raw, pieceBytes: ring.pieceBytes, readsAhead });
  return isZero(raw, length) ? undefined : ranges;
}

function storing(run: BlockRun): Fill {
  const holes = new HoleFinder(run.source);
  return index => {
    const ranges = readBlock(run, index, holes.ranges(index));
    return ranges === undefined ? ZERO : { zero: false, compressedBytes: 0, ranges };
  };
}

function decompressing(run: BlockRun, frames: Float64Array): Fill {
  return index => {
    const sizeBytes = frames[2 * index + 1]!;
    if (sizeBytes > COMPRESSED_ROOM)
      throw new FaultError({ kind: 'corrupt', reason: 'a zstd frame is larger than its content allows' });
    const raw = ring.raw(index);
    const bytes = ring.compressed(index).subarray(0, sizeBytes);
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
  return index => {
    const { zero, ranges } = check(index);
    const isFull = blockLength(run.source.lengthBytes, index) === BLOCK_BYTES;
    return { zero: zero && isFull, compressedBytes: frames[2 * index + 1]!, ranges };
  };
}

function fillAll(run: BlockRun, fill: Fill): void {
  for (let index = ring.claim(); index < run.blockCount; index = ring.claim()) {
    if (!ring.waitToFill(index)) throw canceledFault();
    ring.publish(index, fill(index));
  }
}

/**
 * What a worker that compresses reads: its next block while it compresses one. That it has claimed the next one before it is done with
 * this holds nobody up: the oldest block of all is always in work, and what it waits for is older.
 */
class ReadAhead {
  readonly #run: BlockRun;
  readonly #holes: HoleFinder;
  readonly #async: AsyncReader | undefined;
  #next: number | undefined;
  /** Of the next block, once they were asked for. */
  #ranges: Range[] | undefined;
  #isBegun = false;

  constructor(run: BlockRun) {
    this.#run = run;
    this.#holes = new HoleFinder(run.source);
    // what is short is over before the first one would be read so
    if (run.blockCount > ring.raws && !ring.isLimited) this.#async = AsyncReader.open(run.source.fd);
  }

  /** The block that the worker has claimed. */
  get next(): number {
    this.#next ??= ring.claim();
    return this.#next;
  }

  /** Reads that block, or waits until it is read, and begins to read another one if that can be now. */
  read(): Read {
    const index = this.next;
    if (!ring.waitToRead(index)) throw canceledFault();
    const ranges = this.#ranges ?? this.#holes.ranges(index);
    const read = this.#take(index, ranges);
    this.#next = undefined;
    this.#ranges = undefined;
    // the last ones are left to whoever has time
    if (this.#async && index + ring.raws < this.#run.blockCount && ring.mayRead(this.next)) {
      this.#ranges = this.#holes.ranges(this.next);
      this.#isBegun = this.#begin(this.next, this.#ranges);
      // what lies in several pieces goes through the kernel's cache
      if (!this.#isBegun && this.#ranges.length > 0)
        willNeed(this.#run.source.fd, this.#offsetOf(this.next), BLOCK_BYTES);
    }
    return read;
  }

  #take(index: number, ranges: Range[]): Read {
    const isBegun = this.#isBegun || this.#begin(index, ranges);
    this.#isBegun = false;
    // what the kernel reads further ahead would be in its cache when it is to be read past that
    if (!isBegun || !this.#async!.end()) return readBlock(this.#run, index, ranges, !this.#async?.isOfUse);
    return isZero(ring.raw(index), blockLength(this.#run.source.lengthBytes, index)) ? undefined : ranges;
  }

  /** Begins to read a block whose data lie in one piece. */
  #begin(index: number, [range, ...others]: Range[]): boolean {
    if (!this.#async || !range || others.length > 0) return false;
    const raw = ring.raw(index);
    raw.fill(0, 0, range.start);
    raw.fill(0, range.end);
    return this.#async.begin(raw.subarray(range.start, range.end), this.#offsetOf(index) + range.start);
  }

  #offsetOf(index: number): number {
    return this.#run.source.offset + index * BLOCK_BYTES;
  }

  /** Waits for what was begun. */
  close(): void {
    this.#async?.close();
  }
}

function compressAll(run: BlockRun, level: number): void {
  if (compressor?.level !== level) compressor = { level, use: new Compressor(level) };
  const ahead = new ReadAhead(run);
  try {
    for (let index = ahead.next; index < run.blockCount; index = ahead.next) {
      const ranges = ahead.read();
      if (!ring.waitToFill(index)) throw canceledFault();
      ring.publish(index, compress(run, index, ranges, compressor.use));
      if (!run.hash) ring.releaseRaw(index);
    }
  } finally {
    ahead.close();
  }
}

function compress({ source }: BlockRun, index: number, ranges: Read, use: Compressor): BlockResult {
  const length = blockLength(source.lengthBytes, index);
  if (ranges === undefined && length === BLOCK_BYTES) return ZERO;
  const raw = ring.raw(index);
  const padded = paddedBlockLength(source.lengthBytes, index);
  raw.fill(0, ranges === undefined ? 0 : length, padded);
  const compressedBytes = use.frame(ring.compressed(index), raw.subarray(0, padded));
  return { zero: false, compressedBytes, ranges: ranges ?? [] };
}

function work(run: BlockRun): void {
  const { codec } = run;
  if (codec.kind === 'compress') compressAll(run, codec.level);
  else if (codec.kind === 'store') fillAll(run, storing(run));
  else fillAll(run, (codec.kind === 'carry' ? carrying : decompressing)(run, codec.frames));
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
