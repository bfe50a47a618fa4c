import { createHash, type Hash } from 'node:crypto';
import { parentPort, workerData } from 'node:worker_threads';
import { BLOCK_BYTES, blockLength, paddedBlockLength } from '../format/layout.ts';
import { FrameList } from '../format/seek-table.ts';
import { Compressor } from './codec.ts';
import { canceledFault, faultOf } from './fault.ts';
import { Ring, type RingMemory } from './ring.ts';
import { Sink } from './sink.ts';

/** One order to the sequencer; each is answered once. */
export type Order =
  /** Starts output to `fd` at `position` (a multiple of 4096); `level` null for no compression. */
  | { op: 'open'; fd: number; position: number; level: number | null; resume?: Resume }
  /** Adds small content to the (uncompressed) stream; with zstd, as frames of its own. */
  | { op: 'bytes'; bytes: Uint8Array }
  /** Takes the blocks of a run in order. Answers {@link RunResult}. */
  | { op: 'run'; run: SequencerRun }
  /** Ends the output, with a seek table when compressing. Answers the file's size, durable with `sync`. */
  | { op: 'end'; sync: boolean };

/** What is in a compressed file that is extended. */
export interface Resume {
  /** Bytes between `position` and the place where new frames go, fewer than 4096: written again with them. */
  head: Uint8Array;
  /** Seek table entries of the frames that stay. */
  entries: Uint8Array;
}

export interface SequencerRun {
  lengthBytes: number;
  blockCount: number;
  codec: 'store' | 'compress' | 'decompress' | 'carry';
  hash: boolean;
  /** False when the blocks are only hashed or checked. */
  output: boolean;
}

export interface RunResult {
  sha256: string | null;
  /** Bytes that were not holes. */
  allocatedBytes: number;
}

const PROGRESS_MS = 100;
const ring = new Ring(workerData as RingMemory);
let sink: Sink | undefined;
let frames = new FrameList();
let compressor: Compressor | undefined;
let zeroFrame: Buffer | undefined;
let reportedAt = 0;

function report(bytesDone: number): void {
  const now = performance.now();
  if (now - reportedAt < PROGRESS_MS) return;
  reportedAt = now;
  parentPort!.postMessage({ progress: bytesDone });
}

function open(order: Extract<Order, { op: 'open' }>): void {
  sink = new Sink(order.fd, order.position, {
    buffer: ring.output,
    cancelled: () => ring.cancelled,
    pieceBytes: () => ring.pieceBytes,
  });
  frames = order.resume === undefined ? new FrameList() : FrameList.of(order.resume.entries);
  if (order.resume !== undefined) sink.write(order.resume.head);
  compressor = order.level === null ? undefined : new Compressor(order.level);
  zeroFrame = undefined;
}

/** Appends a frame to the output and the list; its content's checksum is its last four bytes. */
function addFrame(frame: Buffer, rawBytes: number): void {
  frames.add(frame.length, rawBytes, frame.readUInt32LE(frame.length - 4));
  sink!.write(frame);
}

function addBytes(bytes: Uint8Array): void {
  for (let start = 0; start < bytes.length; start += BLOCK_BYTES) {
    const piece = bytes.subarray(start, start + BLOCK_BYTES);
    if (compressor === undefined) sink!.write(piece);
    else {
      const room = ring.compressed(0);
      addFrame(Buffer.from(room.subarray(0, compressor.frame(room, piece))), piece.length);
    }
  }
}

function addZeroFrame(): void {
  if (zeroFrame === undefined) {
    const room = Buffer.alloc(4096);
    zeroFrame = Buffer.from(room.subarray(0, compressor!.frame(room, ring.zeros)));
  }
  addFrame(zeroFrame, BLOCK_BYTES);
}

/** Takes one filled block: hash first, then output. @returns bytes that were not holes */
function take(run: SequencerRun, index: number, hash: Hash | undefined): number {
  const length = blockLength(run.lengthBytes, index);
  const { zero, compressedBytes, ranges } = ring.result(index);
  hash?.update((zero ? ring.zeros : ring.raw(index)).subarray(0, length));
  if (run.output) {
    if (run.codec !== 'compress' && run.codec !== 'carry')
      putRanges(zero ? [] : ranges, ring.raw(index), length);
    else if (zero) addZeroFrame();
    else
      addFrame(
        ring.compressed(index).subarray(0, compressedBytes),
        paddedBlockLength(run.lengthBytes, index),
      );
  }
  return zero ? 0 : ranges.reduce((sum, range) => sum + range.end - range.start, 0);
}

function putRanges(ranges: { start: number; end: number }[], raw: Buffer, length: number): void {
  let at = 0;
  for (const { start, end } of ranges) {
    if (start > at) sink!.skip(start - at);
    sink!.write(raw.subarray(start, end));
    at = end;
  }
  if (at < length) sink!.skip(length - at);
}

function sequence(run: SequencerRun): RunResult {
  const hash = run.hash ? createHash('sha256') : undefined;
  let allocatedBytes = 0;
  // the first block is told at once
  reportedAt = Number.NEGATIVE_INFINITY;
  for (let index = 0; index < run.blockCount; index++) {
    if (!ring.waitFilled(index)) throw canceledFault();
    allocatedBytes += take(run, index, hash);
    ring.release(index);
    if (run.hash && run.codec === 'compress') ring.releaseRaw(index);
    report(Math.min((index + 1) * BLOCK_BYTES, run.lengthBytes));
  }
  return { sha256: hash?.digest('hex') ?? null, allocatedBytes };
}

function end(sync: boolean): number {
  if (compressor !== undefined) sink!.write(frames.encode());
  const sizeBytes = sink!.finish(sync);
  sink = undefined;
  return sizeBytes;
}

function obey(order: Order): unknown {
  switch (order.op) {
    case 'open':
      return open(order);
    case 'bytes':
      return addBytes(order.bytes);
    case 'run':
      return sequence(order.run);
    case 'end':
      return end(order.sync);
  }
}

parentPort!.on('message', (order: Order) => {
  try {
    parentPort!.postMessage({ done: true, answer: obey(order) });
  } catch (error) {
    parentPort!.postMessage({ fault: faultOf(error) });
  }
});
parentPort!.postMessage({ loaded: true });
