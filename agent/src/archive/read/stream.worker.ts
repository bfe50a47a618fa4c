import { readSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import zstd from 'zstd-napi/binding.js';
import { FRAME_START_BYTES, hasChecksum, isSkippable } from '../format/seek-table.ts';
import { type WalkedMember, walkTar } from '../format/tar-format.ts';
import { attributed, canceledFault, FaultError, faultOf } from '../threads/fault.ts';
import { Ring, type RingMemory } from '../threads/ring.ts';
import { Sink } from '../threads/sink.ts';
import type { StreamScan } from './stream.ts';

export type StreamOrder =
  | { op: 'scan'; fd: number; mostBytes: number }
  | { op: 'extract'; fd: number; offset: number; lengthBytes: number; targetFd: number }
  | { op: 'read'; fd: number; offset: number; lengthBytes: number };

export interface StreamAnswer {
  scan?: StreamScan;
  bytes?: Uint8Array;
}

const PIECE_BYTES = 1024 * 1024;
/** How many bytes a scan keeps: of one image, of one text, of all definitions, and of everything else together. */
const IMAGE_HEAD_BYTES = 64 * 1024;
const MAX_HEAD_TEXT_BYTES = 16 * 1024 * 1024;
const MAX_XML_BYTES = 64 * 1024 * 1024;
const MAX_HEADS_BYTES = 64 * 1024 * 1024;
const PROGRESS_MS = 100;

/** Forward-only bytes of a zstd file of any number of frames. Memory: two pieces and the window (at most 128 MiB). */
class ZstdStream {
  readonly #fd: number;
  readonly #goOn: (bytesDone: number) => void;
  readonly #context = new zstd.DCtx();
  readonly #input = Buffer.alloc(PIECE_BYTES);
  readonly #output = Buffer.alloc(PIECE_BYTES);
  #inputRest: Buffer = Buffer.alloc(0);
  #outputRest: Buffer = Buffer.alloc(0);
  #fileOffset = 0;
  #frameOpen = false;
  #ended = false;
  /** Every frame so far has a checksum of its content. */
  checked = true;
  /** Uncompressed bytes given out. */
  position = 0;

  /** @param goOn is called between two pieces with the bytes given out so far; it throws to end the stream */
  constructor(fd: number, goOn: (bytesDone: number) => void) {
    this.#fd = fd;
    this.#goOn = goOn;
  }

  /** The next bytes, at most `limit`, valid until the next call; empty at the end. */
  next(limit: number): Buffer {
    while (this.#outputRest.length === 0 && !this.#ended) this.#step();
    const piece = this.#outputRest.subarray(0, limit);
    this.#outputRest = this.#outputRest.subarray(piece.length);
    this.position += piece.length;
    return piece;
  }

  skipTo(offset: number): void {
    while (this.position < offset && this.next(offset - this.position).length > 0);
  }

  #step(): void {
    this.#goOn(this.position);
    if (this.#inputRest.length === 0) this.#refill();
    if (this.#inputRest.length === 0) {
      this.#ended = true;
      if (this.#frameOpen) throw new FaultError({ kind: 'corrupt', reason: 'it ends inside a zstd frame' });
      return;
    }
    if (!this.#frameOpen) this.#lookAtFrame();
    try {
      const [hint, written, consumed] = this.#context.decompressStream(this.#output, this.#inputRest);
      this.#frameOpen = hint !== 0;
      this.#outputRest = this.#output.subarray(0, written);
      this.#inputRest = this.#inputRest.subarray(consumed);
    } catch (error) {
      const reason = `its zstd data is damaged (${(error as Error).message})`;
      throw new FaultError({ kind: 'corrupt', reason });
    }
  }

  #lookAtFrame(): void {
    const start = Buffer.alloc(FRAME_START_BYTES);
    const at = this.#fileOffset - this.#inputRest.length;
    const count = attributed('source_io', () => readSync(this.#fd, start, 0, start.length, at));
    const found = start.subarray(0, count);
    if (!isSkippable(found) && !hasChecksum(found)) this.checked = false;
  }

  #refill(): void {
    const count = attributed('source_io', () =>
      readSync(this.#fd, this.#input, 0, PIECE_BYTES, this.#fileOffset),
    );
    this.#fileOffset += count;
    this.#inputRest = this.#input.subarray(0, count);
  }
}

function tooMuch(mostBytes: number): FaultError {
  const reason = `it unpacks to more than ${mostBytes} bytes, which is more than is read of a file of its size; unpack it by \`zstd -d\` if it is what it should be`;
  return new FaultError({ kind: 'unsupported', reason });
}

let reportedAtMs = 0;

/** How far a scan or an extraction is. */
function reportProgress(bytesDone: number): void {
  if (performance.now() - reportedAtMs <= PROGRESS_MS) return;
  reportedAtMs = performance.now();
  parentPort!.postMessage({ progress: bytesDone });
}

const ring = new Ring(workerData as RingMemory);
const cancelled = () => ring.cancelled;
const unlessCancelled = () => {
  if (cancelled()) throw canceledFault();
};

/** Reads whole pieces forward; what was skipped is decompressed and dropped. */
function readAt(stream: ZstdStream, offset: number, lengthBytes: number): Buffer {
  stream.skipTo(offset);
  const pieces: Buffer[] = [];
  for (let left = lengthBytes; left > 0; ) {
    const piece = stream.next(left);
    if (piece.length === 0) break;
    pieces.push(Buffer.from(piece));
    left -= piece.length;
  }
  return Buffer.concat(pieces);
}

/** How many bytes of a member's beginning a scan keeps: of a text all, of an image as much as its header can take. */
const headBytesOf = ({ name, sizeBytes, isFile }: WalkedMember): number => {
  if (!isFile) return 0;
  const isText = /\.(xml|json)$/i.test(name) && sizeBytes <= MAX_HEAD_TEXT_BYTES;
  return isText ? sizeBytes : Math.min(sizeBytes, IMAGE_HEAD_BYTES);
};

/** Damage ends the scan with what was seen before it. */
async function scan(fd: number, mostBytes: number): Promise<StreamScan> {
  const stream = new ZstdStream(fd, bytesDone => {
    unlessCancelled();
    if (bytesDone > mostBytes) throw tooMuch(mostBytes);
    reportProgress(bytesDone);
  });
  const members: WalkedMember[] = [];
  const heads = new Map<number, Uint8Array>();
  // definitions have their own room: all of them are read to describe the archive, and for each one that was not kept it is unpacked again
  const roomBytes = { xml: MAX_XML_BYTES, other: MAX_HEADS_BYTES };
  // once the walk goes on, the stream is still where the data of the last member begin
  const keepHead = () => {
    const last = members.at(-1);
    if (last === undefined || stream.position !== last.dataOffset) return;
    const headBytes = headBytesOf(last);
    const room = /\.xml$/i.test(last.name) ? 'xml' : 'other';
    if (headBytes === 0 || headBytes > roomBytes[room]) return;
    heads.set(last.dataOffset, readAt(stream, last.dataOffset, headBytes));
    roomBytes[room] -= headBytes;
  };
  const read = async (offset: number, length: number) => {
    keepHead();
    return readAt(stream, offset, length);
  };
  try {
    const { fault } = await walkTar(read, members);
    stream.skipTo(Number.POSITIVE_INFINITY);
    const { checked } = stream;
    return fault === undefined ? { members, heads, checked } : { members, heads, checked, fault };
  } catch (error) {
    const fault = faultOf(error);
    if (fault.kind !== 'corrupt') throw error;
    return { members, heads, checked: false, fault: fault.reason };
  }
}

function extract(order: Extract<StreamOrder, { op: 'extract' }>): void {
  const stream = new ZstdStream(order.fd, unlessCancelled);
  const sink = new Sink(order.targetFd, 0, { buffer: ring.output, cancelled });
  stream.skipTo(order.offset);
  for (let left = order.lengthBytes; left > 0; ) {
    const piece = stream.next(left);
    if (piece.length === 0) throw new FaultError({ kind: 'corrupt', reason: 'it ends inside the member' });
    if (piece.equals(ring.zeros.subarray(0, piece.length))) sink.skip(piece.length);
    else sink.write(piece);
    left -= piece.length;
    reportProgress(order.lengthBytes - left);
  }
  sink.finish(true);
}

async function obey(order: StreamOrder): Promise<StreamAnswer> {
  switch (order.op) {
    case 'scan':
      return { scan: await scan(order.fd, order.mostBytes) };
    case 'extract':
      extract(order);
      return {};
    case 'read':
      return { bytes: readAt(new ZstdStream(order.fd, unlessCancelled), order.offset, order.lengthBytes) };
  }
}

parentPort!.on('message', (order: StreamOrder) => {
  obey(order).then(
    answer => parentPort!.postMessage({ done: true, answer }),
    (error: unknown) => parentPort!.postMessage({ fault: faultOf(error) }),
  );
});
parentPort!.postMessage({ loaded: true });
