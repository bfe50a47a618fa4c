import { MiB } from '@virtkeep/shared/units';
import { BLOCK_BYTES, COMPRESSED_ROOM, roundUp } from '../format/layout.ts';
import { releasePages } from '../system/syscalls.ts';

/** Most data ranges kept per block; more are merged. */
export const MAX_RANGES = 64;

/** The part of the WebAssembly interface used here; TypeScript has it in its browser library only. */
declare const WebAssembly: {
  Memory: new (options: { initial: number; maximum: number; shared: true }) => { buffer: SharedArrayBuffer };
};
const WASM_PAGE = 65_536;
const HEADER_INTS = 7;
const SLOT_INTS = 4 + 2 * MAX_RANGES;
const CANCEL = 0;
const NEXT = 1;
const SLOTS = 2;
/** Whether what is read is counted. */
const LIMITED = 3;
/** KiB that may be read; below zero what is owed. */
const CREDIT = 4;
/** Bytes that are read or written at once at the most; 0: anything. */
const PIECE = 5;
/** Buffers for uncompressed blocks in the present run. */
const RAWS = 6;
const KIB = 1024;
/** How long a thread sleeps before it looks at the cancel flag again. */
const WAKE_MS = 200;

/** What the threads share. */
export interface RingMemory {
  /** Buffers for compressed blocks. There is one more for blocks that are not. */
  slots: number;
  bytes: SharedArrayBuffer;
  control: SharedArrayBuffer;
  /** A block of zeros, the same one for all. */
  zeros: SharedArrayBuffer;
}

/** Made by the main thread alone: each thread has this module. */
let zeros: SharedArrayBuffer | undefined;
/** What is copied there is written at once; more would keep the sequencer from giving slots back for longer. */
const OUTPUT_BYTES = MiB;

/**
 * Room for blocks, and one output buffer. A WebAssembly memory is used because it is page-aligned, which O_DIRECT demands; it is
 * reused for every block, because fresh pages are slow to fault.
 */
export function createRingMemory(slots: number): RingMemory {
  const bytes = rawSlots(slots) * BLOCK_BYTES + slots * COMPRESSED_ROOM + OUTPUT_BYTES;
  const pages = roundUp(bytes, WASM_PAGE) / WASM_PAGE;
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  const control = new SharedArrayBuffer((HEADER_INTS + rawSlots(slots) * (SLOT_INTS + 1)) * 4);
  zeros ??= new SharedArrayBuffer(BLOCK_BYTES);
  return { slots, bytes: memory.buffer, control, zeros };
}

/** Buffers for blocks that are not compressed. */
export const rawSlots = (slots: number): number => slots + 1;

/**
 * Memories of ended engines, kept for the next: they live outside the heap, so nothing else would free them in time. The last ones that
 * were given back keep their pages, the others their addresses alone.
 */
const spare: RingMemory[] = [];
const WARM = 2;

/** As `createRingMemory`, but takes one that was given back when its size fits. */
export function takeRingMemory(slots: number): RingMemory {
  const fitting = spare.findLastIndex(memory => memory.slots === slots);
  return fitting === -1 ? createRingMemory(slots) : spare.splice(fitting, 1)[0]!;
}

/** Gives a memory back; no thread may use it any more. */
export function giveRingMemory(memory: RingMemory): void {
  spare.push(memory);
  const cold = spare.at(-1 - WARM);
  if (cold) releasePages(Buffer.from(cold.bytes));
}

export interface Range {
  start: number;
  end: number;
}

/** What a block worker hands to the sequencer beside the bytes. */
export interface BlockResult {
  /** All zeros: its bytes are not set. */
  zero: boolean;
  /** Bytes in the compressed area; 0 when not compressing. */
  compressedBytes: number;
  /** Parts of the block that hold data, in order; the rest is zeros (and is set when hashing). */
  ranges: Range[];
}

/** What a run does with the buffers. */
export type RingUse =
  /** Blocks go out as they were read. */
  | 'plain'
  /** Blocks wait for compressed ones to be written, and the next ones are read meanwhile. */
  | 'compressing'
  /** Each block has its compressed form beside it until it is written. */
  | 'decompressing';

/**
 * A ring of blocks between the workers that fill them, in any order, and the sequencer that takes them in order.
 * Slot s serves blocks s, s + slots, …; its turn counter says whose it is: 2i = to be filled with block i,
 * 2i + 1 = filled. Threads sleep on the counter, so no event loop takes part. While blocks are compressed, what they are read into
 * has counters of its own, which say what block it is for.
 */
export class Ring {
  readonly zeros: Buffer;
  readonly output: Buffer;
  readonly #memory: RingMemory;
  readonly #control: Int32Array;

  constructor(memory: RingMemory) {
    this.#memory = memory;
    this.#control = new Int32Array(memory.control);
    this.output = Buffer.from(memory.bytes, this.#compressedAt(memory.slots), OUTPUT_BYTES);
    this.zeros = Buffer.from(memory.zeros);
  }

  /** Slots of the present run. */
  get slots(): number {
    return this.#control[SLOTS]!;
  }

  /** Buffers for uncompressed blocks in the present run: as many as slots, or one more. */
  get raws(): number {
    return this.#control[RAWS]!;
  }

  /** Uncompressed bytes of a block. */
  raw(index: number): Buffer {
    return Buffer.from(this.#memory.bytes, (index % this.raws) * BLOCK_BYTES, BLOCK_BYTES);
  }

  /** Compressed bytes of a block. */
  compressed(index: number): Buffer {
    return Buffer.from(this.#memory.bytes, this.#compressedAt(index % this.slots), COMPRESSED_ROOM);
  }

  #compressedAt(slot: number): number {
    return rawSlots(this.#memory.slots) * BLOCK_BYTES + slot * COMPRESSED_ROOM;
  }

  /** Makes the ring ready for a run; no thread may be in one. @param isLean with one slot less than there are */
  reset(use: RingUse = 'plain', isLean = false): void {
    const slots = this.#memory.slots - (isLean ? 1 : 0);
    this.#control[SLOTS] = use === 'plain' ? rawSlots(slots) : slots;
    this.#control[RAWS] = use === 'decompressing' ? slots : rawSlots(slots);
    Atomics.store(this.#control, CANCEL, 0);
    Atomics.store(this.#control, NEXT, 0);
    Atomics.store(this.#control, LIMITED, 0);
    Atomics.store(this.#control, CREDIT, 0);
    for (let slot = 0; slot < this.slots; slot++) Atomics.store(this.#control, this.#at(slot), 2 * slot);
    for (let raw = 0; raw < this.raws; raw++) Atomics.store(this.#control, this.#rawAt(raw), raw);
  }

  cancel(): void {
    Atomics.store(this.#control, CANCEL, 1);
    for (let slot = 0; slot < this.slots; slot++) Atomics.notify(this.#control, this.#at(slot));
    for (let raw = 0; raw < this.raws; raw++) Atomics.notify(this.#control, this.#rawAt(raw));
    Atomics.notify(this.#control, CREDIT);
  }

  /** What the next run reads is counted, and waits until it is paid. To be called after `reset`. */
  limit(): void {
    Atomics.store(this.#control, LIMITED, 1);
  }

  get isLimited(): boolean {
    return Atomics.load(this.#control, LIMITED) !== 0;
  }

  /** What may be read or written at once, bytes; holds until it is set anew. */
  get pieceBytes(): number {
    const piece = Atomics.load(this.#control, PIECE);
    return piece === 0 ? Number.POSITIVE_INFINITY : piece;
  }

  /** @param bytes undefined: anything */
  setPiece(bytes: number | undefined): void {
    Atomics.store(this.#control, PIECE, bytes ?? 0);
  }

  /** Counts bytes that are going to be read, and waits until nothing is owed; false when cancelled. */
  spend(bytes: number): boolean {
    if (!this.isLimited) return true;
    Atomics.sub(this.#control, CREDIT, Math.ceil(bytes / KIB));
    for (;;) {
      if (this.cancelled) return false;
      const credit = Atomics.load(this.#control, CREDIT);
      if (credit >= 0) return true;
      Atomics.wait(this.#control, CREDIT, credit, WAKE_MS);
    }
  }

  /** Bytes that are owed. */
  get owed(): number {
    return Math.max(0, -Atomics.load(this.#control, CREDIT)) * KIB;
  }

  /** Pays what is owed, in KiB. */
  pay(bytes: number): void {
    Atomics.add(this.#control, CREDIT, bytes / KIB);
    Atomics.notify(this.#control, CREDIT);
  }

  get cancelled(): boolean {
    return Atomics.load(this.#control, CANCEL) !== 0;
  }

  /** Takes the next block number for the calling worker. */
  claim(): number {
    return Atomics.add(this.#control, NEXT, 1);
  }

  /** Waits until block `index` may be filled; false when cancelled. */
  waitToFill(index: number): boolean {
    return this.#wait(this.#at(index % this.slots), 2 * index);
  }

  /** Waits until block `index` is filled; false when cancelled. */
  waitFilled(index: number): boolean {
    return this.#wait(this.#at(index % this.slots), 2 * index + 1);
  }

  /** Waits until block `index`, which is to be compressed, may be read; false when cancelled. */
  waitToRead(index: number): boolean {
    return this.#wait(this.#rawAt(index % this.raws), index);
  }

  /** Whether `waitToRead` would not wait. */
  mayRead(index: number): boolean {
    return Atomics.load(this.#control, this.#rawAt(index % this.raws)) === index;
  }

  /** Nobody needs block `index` uncompressed any more: what follows it there may be read. */
  releaseRaw(index: number): void {
    this.#turn(this.#rawAt(index % this.raws), index + this.raws);
  }

  publish(index: number, result: BlockResult): void {
    const at = this.#at(index % this.slots);
    this.#control[at + 1] = result.zero ? 1 : 0;
    this.#control[at + 2] = result.compressedBytes;
    this.#control[at + 3] = result.ranges.length;
    result.ranges.forEach(({ start, end }, number) => {
      this.#control[at + 4 + 2 * number] = start;
      this.#control[at + 5 + 2 * number] = end;
    });
    this.#turn(at, 2 * index + 1);
  }

  result(index: number): BlockResult {
    const at = this.#at(index % this.slots);
    const ranges = Array.from({ length: this.#control[at + 3]! }, (_, number) => ({
      start: this.#control[at + 4 + 2 * number]!,
      end: this.#control[at + 5 + 2 * number]!,
    }));
    return { zero: this.#control[at + 1] === 1, compressedBytes: this.#control[at + 2]!, ranges };
  }

  /** Gives the slot of block `index` back for the block that follows in it. */
  release(index: number): void {
    this.#turn(this.#at(index % this.slots), 2 * (index + this.slots));
  }

  #at(slot: number): number {
    return HEADER_INTS + slot * SLOT_INTS;
  }

  #rawAt(raw: number): number {
    return HEADER_INTS + rawSlots(this.#memory.slots) * SLOT_INTS + raw;
  }

  #turn(at: number, value: number): void {
    Atomics.store(this.#control, at, value);
    Atomics.notify(this.#control, at);
  }

  #wait(at: number, expected: number): boolean {
    for (;;) {
      if (this.cancelled) return false;
      const now = Atomics.load(this.#control, at);
      if (now === expected) return true;
      Atomics.wait(this.#control, at, now, WAKE_MS);
    }
  }
}
