import { createHash, type Hash } from 'node:crypto';
import { parentPort, workerData } from 'node:worker_threads';
import { readFully } from './block-source.ts';
import { Compressor } from './codec.ts';
import { canceledFault, faultOf } from './fault.ts';
import { BLOCK_BYTES, blockLength, DATA_ALIGN, paddedBlockLength } from './layout.ts';
import { Ring, type RingMemory } from './ring.ts';
import { FrameList } from './seek-table.ts';
import { Sink } from './sink.ts';
import { cloneRange, sizeOf } from './syscalls.ts';

/** One order to the sequencer; each is answered once. */
export type Order =
  /** Starts output to `fd` at `position` (a multiple of 4096); `level` null for no compression. */
  | { op: 'open'; fd: number; position: number; level: number | null }
  /** Adds small content to the (uncompressed) stream; with zstd, as frames of its own. Answers the SHA-256. */
  | { op: 'bytes'; bytes: Uint8Array; hash: boolean }
  /** Takes the blocks of a run in order. Answers {@link RunResult}. */
  | { op: 'run'; run: SequencerRun }
  /** Reflinks into the output; answers false, with nothing done, where that is impossible. */
  | { op: 'clone'; fd: number; offset: number; lengthBytes: number }
  /** Goes on at a later multiple of 4096. */
  | { op: 'jump'; position: number }
  /** Ends the output, with a seek table when compressing, durably. Answers the file's size. */
  | { op: 'end' }
  /** Answers the size of a file or block device. */
  | { op: 'size'; fd: number };

export interface SequencerRun {
  lengthBytes: number;
  blockCount: number;
  codec: 'store' | 'compress' | 'decompress';
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
/** Reflinked at a time, so that a cancellation is seen in between. */
const CLONE_BYTES = 4 * 1024 * 1024 * 1024;

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
  sink = new Sink(order.fd, order.position, ring.output, () => ring.cancelled);
  frames = new FrameList();
  compressor = order.level === null ? undefined : new Compressor(order.level);
  zeroFrame = undefined;
}

/** Appends a frame to the output and the list; its content's checksum is its last four bytes. */
function addFrame(frame: Buffer, rawBytes: number): void {
  frames.add(frame.length, rawBytes, frame.readUInt32LE(frame.length - 4));
  sink!.write(frame);
}

function addBytes(bytes: Uint8Array, hash: boolean): string | null {
  for (let start = 0; start < bytes.length; start += BLOCK_BYTES) {
    const piece = bytes.subarray(start, start + BLOCK_BYTES);
    if (compressor === undefined) sink!.write(piece);
    else {
      const room = ring.compressed(0);
      addFrame(Buffer.from(room.subarray(0, compressor.frame(room, piece))), piece.length);
    }
  }
  return hash ? createHash('sha256').update(bytes).digest('hex') : null;
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
  const slot = index % ring.slots;
  const { zero, compressedBytes, ranges } = ring.result(index);
  hash?.update((zero ? ring.zeros : ring.raw(slot)).subarray(0, length));
  if (run.output) {
    if (run.codec !== 'compress') putRanges(zero ? [] : ranges, ring.raw(slot), length);
    else if (zero) addZeroFrame();
    else
      addFrame(ring.compressed(slot).subarray(0, compressedBytes), paddedBlockLength(run.lengthBytes, index));
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
  for (let index = 0; index < run.blockCount; index++) {
    if (!ring.waitFilled(index)) throw canceledFault();
    allocatedBytes += take(run, index, hash);
    ring.release(index);
    report(Math.min((index + 1) * BLOCK_BYTES, run.lengthBytes));
  }
  return { sha256: hash?.digest('hex') ?? null, allocatedBytes };
}

/** Clones all whole multiples of 4096 and copies what is left of the last one. */
function clone(order: Extract<Order, { op: 'clone' }>): boolean {
  const target = sink!;
  const whole = order.lengthBytes - (order.lengthBytes % DATA_ALIGN);
  if (target.position % DATA_ALIGN !== 0 || order.offset % DATA_ALIGN !== 0 || whole === 0) return false;
  const start = target.position;
  target.jump(start);
  for (let done = 0; done < whole; done += CLONE_BYTES) {
    if (ring.cancelled) throw canceledFault();
    const length = Math.min(CLONE_BYTES, whole - done);
    if (!cloneRange(target.fd, start + done, order.fd, order.offset + done, length)) {
      if (done === 0) return false;
      throw new Error('the file system stopped sharing extents in the middle');
    }
    report(done + length);
  }
  target.jump(start + whole);
  const tail = Buffer.alloc(order.lengthBytes - whole);
  readFully(order.fd, tail, order.offset + whole);
  target.write(tail);
  return true;
}

function end(): number {
  if (compressor !== undefined) sink!.write(frames.encode());
  const sizeBytes = sink!.finish();
  sink = undefined;
  return sizeBytes;
}

function obey(order: Order): unknown {
  switch (order.op) {
    case 'open':
      return open(order);
    case 'bytes':
      return addBytes(order.bytes, order.hash);
    case 'run':
      return sequence(order.run);
    case 'clone':
      return clone(order);
    case 'jump':
      return sink!.jump(order.position);
    case 'end':
      return end();
    case 'size':
      return sizeOf(order.fd);
  }
}

parentPort!.on('message', (order: Order) => {
  try {
    parentPort!.postMessage({ done: true, answer: obey(order) });
  } catch (error) {
    parentPort!.postMessage({ fault: faultOf(error) });
  }
});
