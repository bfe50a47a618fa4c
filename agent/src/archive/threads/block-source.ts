import { readSync } from 'node:fs';
import { BLOCK_BYTES, blockLength, DATA_ALIGN, roundUp } from '../format/layout.ts';
import {
  dontNeed,
  nextData,
  nextDataAside,
  nextHole,
  nextHoleAside,
  sizeOf,
  sizeOfAside,
  willNeed,
} from '../system/syscalls.ts';
import { attributed, FaultError } from './fault.ts';
import { MAX_RANGES, type Range } from './ring.ts';

/** Blocks read ahead in the background. */
export const READ_AHEAD_BLOCKS = 4;
/** Grain in which zeros are looked for in decompressed data; smaller holes would make many small writes. */
const ZERO_GRAIN = 256 * 1024;

/** A part of a file, cut into blocks. */
export interface BlockSource {
  fd: number;
  /** Where the part starts. */
  offset: number;
  lengthBytes: number;
}

/** A question about a file's holes; the answer is a number. */
type Question = { what: 'data' | 'hole' | 'size'; offset: number };

/** Each reader remembers the end of the hole that it saw last, so blocks inside that hole need no system call. */
export class HoleFinder {
  readonly #source: BlockSource;
  #dataFrom = 0;

  constructor(source: BlockSource) {
    this.#source = source;
  }

  /** The parts of a block that may hold data, widened to 4096 and merged when there are too many. For worker threads. */
  ranges(index: number): Range[] {
    const { fd } = this.#source;
    const search = this.#search(index);
    let step = search.next();
    while (!step.done) {
      const { what, offset } = step.value;
      step = search.next(
        what === 'size' ? sizeOf(fd) : what === 'data' ? nextData(fd, offset) : nextHole(fd, offset),
      );
    }
    return step.value;
  }

  /** The same for the main thread, which a file system that hangs must not hold up. */
  async rangesAside(index: number): Promise<Range[]> {
    const { fd } = this.#source;
    const search = this.#search(index);
    let step = search.next();
    while (!step.done) {
      const { what, offset } = step.value;
      const answer =
        what === 'size'
          ? sizeOfAside(fd)
          : what === 'data'
            ? nextDataAside(fd, offset)
            : nextHoleAside(fd, offset);
      step = search.next(await answer);
    }
    return step.value;
  }

  *#search(index: number): Generator<Question, Range[], number> {
    const { offset } = this.#source;
    const start = offset + index * BLOCK_BYTES;
    const length = blockLength(this.#source.lengthBytes, index);
    const end = start + length;
    if (this.#dataFrom >= end) return [];
    const ranges: Range[] = [];
    for (let at = start; at < end; ) {
      const data = yield { what: 'data', offset: at };
      // "No more data" is also the answer for a file that was cut.
      if (data === Number.POSITIVE_INFINITY && (yield { what: 'size', offset: 0 }) < end)
        throw becameShorter();
      this.#dataFrom = data === Number.POSITIVE_INFINITY ? end : data;
      if (data >= end) break;
      const found = yield { what: 'hole', offset: data };
      // No data there after all: the file system could not say where they are.
      const hole = found > data ? found : Number.POSITIVE_INFINITY;
      const from = data - start - ((data - start) % DATA_ALIGN);
      addRange(ranges, from, Math.min(length, roundUp(Math.min(hole, end) - start, DATA_ALIGN)));
      at = hole;
    }
    return ranges;
  }
}

function addRange(ranges: Range[], start: number, end: number): void {
  const last = ranges.at(-1);
  if (last !== undefined && (start <= last.end || ranges.length === MAX_RANGES))
    last.end = Math.max(last.end, end);
  else ranges.push({ start, end });
}

const becameShorter = () => new FaultError({ kind: 'source_short', reason: 'it ended before its length' });

export interface RangesToRead {
  ranges: readonly Range[];
  into: Buffer;
  /** Read at once, at the most; a whole block is not read ahead then. */
  pieceBytes: number;
  /** Whether the kernel is to read a later block ahead, into its cache. */
  readsAhead: boolean;
}

/** Reads the given parts of a block into the slot. A source that became shorter is a fault. */
export function readRanges(
  source: BlockSource,
  index: number,
  { ranges, into, pieceBytes, readsAhead }: RangesToRead,
): void {
  const start = source.offset + index * BLOCK_BYTES;
  const ahead = start + READ_AHEAD_BLOCKS * BLOCK_BYTES;
  const isAhead = readsAhead && pieceBytes >= BLOCK_BYTES && ahead < source.offset + source.lengthBytes;
  if (isAhead) willNeed(source.fd, ahead, BLOCK_BYTES);
  for (const range of ranges)
    readFully(source.fd, into.subarray(range.start, range.end), start + range.start, pieceBytes);
  dontNeed(source.fd, start, BLOCK_BYTES);
}

/** Fills the buffer from the file at `offset`. @param pieceBytes as in {@link readRanges} */
export function readFully(
  fd: number,
  into: Uint8Array,
  offset: number,
  pieceBytes = Number.POSITIVE_INFINITY,
): void {
  for (let done = 0; done < into.length; ) {
    const length = Math.min(into.length - done, pieceBytes);
    const count = attributed('source_io', () => readSync(fd, into, done, length, offset + done));
    if (count === 0) throw becameShorter();
    done += count;
  }
}

/** Parts of decompressed bytes that are not zeros, so that what was a hole becomes one again. */
export function nonZeroRanges(bytes: Buffer, zeros: Buffer): Range[] {
  const ranges: Range[] = [];
  for (let start = 0; start < bytes.length; start += ZERO_GRAIN) {
    const end = Math.min(start + ZERO_GRAIN, bytes.length);
    if (!bytes.subarray(start, end).equals(zeros.subarray(0, end - start))) addRange(ranges, start, end);
  }
  return ranges;
}
