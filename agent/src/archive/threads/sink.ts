import { fdatasyncSync, ftruncateSync, writeSync } from 'node:fs';
import { DATA_ALIGN } from '../format/layout.ts';
import { copyShared, leaveDirect } from '../system/syscalls.ts';
import { attributed, canceledFault } from './fault.ts';

const floorAlign = (value: number): number => value - (value % DATA_ALIGN);

/** Holes shorter than this are written as zeros. */
const SMALLEST_SKIP_BYTES = 64 * 1024;

export interface SinkOptions {
  /** For what does not fill a multiple, page-aligned. */
  buffer: Buffer;
  cancelled: () => boolean;
  /** Written at once now, at the most, a multiple of 4096; absent: anything. */
  pieceBytes?: () => number;
}

/**
 * Ordered output to a file at multiples of 4096, as O_DIRECT demands. What does not fill a multiple waits in the
 * buffer; big aligned pieces of the ring go out from where they lie, uncopied. Where the file system refuses
 * O_DIRECT in the middle of it, the file goes on buffered.
 */
export class Sink {
  readonly #fd: number;
  readonly #buffer: Buffer;
  readonly #cancelled: () => boolean;
  readonly #pieceBytes: () => number;
  /** File offset of the buffer's first byte, a multiple of 4096. */
  #base: number;
  #fill = 0;

  /** @param position file offset of the first byte, a multiple of 4096 */
  constructor(fd: number, position: number, { buffer, cancelled, pieceBytes }: SinkOptions) {
    this.#fd = fd;
    this.#base = position;
    this.#buffer = buffer;
    this.#cancelled = cancelled;
    this.#pieceBytes = pieceBytes ?? (() => Number.POSITIVE_INFINITY);
  }

  get position(): number {
    return this.#base + this.#fill;
  }

  write(bytes: Uint8Array): void {
    let rest = bytes;
    if (this.#fill === 0 && rest.buffer === this.#buffer.buffer && rest.byteOffset % DATA_ALIGN === 0) {
      const whole = floorAlign(rest.length);
      this.#put(rest.subarray(0, whole));
      rest = rest.subarray(whole);
    }
    while (rest.length > 0) {
      const taken = Math.min(rest.length, this.#buffer.length - this.#fill);
      copyShared(this.#buffer.subarray(this.#fill), rest.subarray(0, taken));
      this.#fill += taken;
      rest = rest.subarray(taken);
      if (this.#fill === this.#buffer.length) this.#flushWhole();
    }
  }

  /** Leaves a hole of zeros; the file beyond the position must be empty. */
  skip(lengthBytes: number): void {
    let left = lengthBytes;
    if (left >= SMALLEST_SKIP_BYTES) {
      const lead = (DATA_ALIGN - (this.#fill % DATA_ALIGN)) % DATA_ALIGN;
      this.#zeros(lead);
      this.#flushWhole();
      const whole = floorAlign(left - lead);
      this.#base += whole;
      left -= lead + whole;
    }
    this.#zeros(left);
  }

  /** Writes out all whole multiples of 4096. */
  #flushWhole(): void {
    const whole = floorAlign(this.#fill);
    if (whole === 0) return;
    this.#put(this.#buffer.subarray(0, whole));
    this.#buffer.copyWithin(0, whole, this.#fill);
    this.#fill -= whole;
  }

  /** Writes the rest, cuts the file to its true size and, with `sync`, makes it durable. @returns the size */
  finish(sync: boolean): number {
    const sizeBytes = this.position;
    this.#zeros((DATA_ALIGN - (this.#fill % DATA_ALIGN)) % DATA_ALIGN);
    this.#flushWhole();
    attributed('target_io', () => {
      ftruncateSync(this.#fd, sizeBytes);
      if (sync) fdatasyncSync(this.#fd);
    });
    return sizeBytes;
  }

  #zeros(count: number): void {
    for (let left = count; left > 0; ) {
      const taken = Math.min(left, this.#buffer.length - this.#fill);
      this.#buffer.fill(0, this.#fill, this.#fill + taken);
      this.#fill += taken;
      left -= taken;
      if (this.#fill === this.#buffer.length) this.#flushWhole();
    }
  }

  #put(bytes: Uint8Array): void {
    for (let done = 0; done < bytes.length; ) {
      if (this.#cancelled()) throw canceledFault();
      const piece = bytes.subarray(done, done + this.#pieceBytes());
      done += attributed('target_io', () => this.#writeSome(piece, this.#base + done));
    }
    this.#base += bytes.length;
  }

  #writeSome(bytes: Uint8Array, offset: number): number {
    try {
      return writeSync(this.#fd, bytes, 0, bytes.length, offset);
    } catch (error) {
      const refused = (error as { code?: string }).code === 'EINVAL' && leaveDirect(this.#fd);
      if (!refused) throw error;
      return writeSync(this.#fd, bytes, 0, bytes.length, offset);
    }
  }
}
