/**
 * Reads in the background of a thread that computes: asynchronous I/O of Linux (io_submit(2)), direct, past the page cache. Of what a backup
 * reads nothing is needed there; to bring it in, copy it and drop it again took a ninth of the processor time of a compressed backup.
 */
import { closeSync, constants, openSync } from 'node:fs';
import { arch } from 'node:process';
import koffi from 'koffi';
import { DATA_ALIGN } from '../format/layout.ts';
import { pageSize, readNothingAhead } from './syscalls.ts';

/** asm/unistd.h; there is no function for them in libc. The first four differ, the last is of Linux 6.5. */
const SYSCALLS: Partial<Record<NodeJS.Architecture, Record<keyof Kernel, number>>> = {
  x64: { setup: 206, destroy: 207, getEvents: 208, submit: 209, cacheStat: 451 },
  arm64: { setup: 0, destroy: 1, getEvents: 4, submit: 2, cacheStat: 451 },
};

type Call = ReturnType<ReturnType<typeof koffi.load>['func']>;
interface Kernel {
  setup: Call;
  destroy: Call;
  submit: Call;
  getEvents: Call;
  cacheStat: Call;
}
const PARAMETERS: Record<keyof Kernel, string[]> = {
  setup: ['uint', 'void *'],
  destroy: ['uint64'],
  submit: ['uint64', 'long', 'void *'],
  getEvents: ['uint64', 'long', 'long', 'void *', 'void *'],
  cacheStat: ['uint', 'void *', 'void *', 'uint'],
};

/** struct iocb, struct io_event: linux/aio_abi.h */
const IOCB = { bytes: 64, opcode: 16, fd: 20, buffer: 24, length: 32, offset: 40 };
const EVENT = { bytes: 32, result: 16 };
const READ = 0;
/** struct cachestat_range, struct cachestat: linux/mman.h; the first number of the latter is that of cached pages. */
const CACHE_RANGE_BYTES = 16;
const CACHE_STAT_BYTES = 40;
/** To begin takes a third of a millisecond, and rarely more. */
const SLOW_MS = 3;
const MOST_DOUBTS = 4;
const { EINTR } = koffi.os.errno as { EINTR: number };

/** One read at a time. Whoever has begun one must take its end before the memory is used for anything else. */
export class AsyncReader {
  readonly #fd: number;
  readonly #directFd: number;
  readonly #context: bigint;
  /** The kernel is told where it is by a number alone, for which nobody would keep it. */
  readonly #block = Buffer.alloc(IOCB.bytes);
  readonly #list = Buffer.alloc(8);
  #wantedBytes: number | undefined;
  #isSlow = false;
  /** So many reads in a row took long to begin, or failed. */
  #doubts = 0;

  private constructor(fd: number, directFd: number, context: bigint) {
    this.#fd = fd;
    this.#directFd = directFd;
    this.#context = context;
    this.#block.writeUInt16LE(READ, IOCB.opcode);
    this.#block.writeUInt32LE(directFd, IOCB.fd);
    this.#list.writeBigUInt64LE(addressOf(this.#block));
  }

  /**
   * From then on the kernel reads nothing ahead of what this open file is asked for: it would be in its cache when its turn comes.
   * @returns undefined where the kernel or the file system has no such reads, or they are forbidden, or too many are open
   */
  static open(fd: number): AsyncReader | undefined {
    if (!kernel() || cachedBytes(fd, 0, DATA_ALIGN) < 0) return undefined;
    let directFd: number;
    try {
      directFd = openSync(`/proc/self/fd/${fd}`, constants.O_RDONLY | constants.O_DIRECT);
    } catch {
      return undefined;
    }
    const context = Buffer.alloc(8);
    if (call('setup', 1, context) !== 0) {
      closeSync(directFd);
      return undefined;
    }
    readNothingAhead(fd);
    return new AsyncReader(fd, directFd, context.readBigUInt64LE());
  }

  /** False once it has shown that such reads fail here, or that the file system reads before it says that it has begun (btrfs what it compressed, ZFS). */
  get isOfUse(): boolean {
    return this.#doubts < MOST_DOUBTS;
  }

  /**
   * Begins to read.
   * @param into page-aligned memory that does not move and stays until the end, as the ring's does; the offset and the length are
   * multiples of a page, too
   * @returns false: nothing has begun; what is in memory already, or cannot be read so, is read as ever
   */
  begin(into: Buffer, offset: number): boolean {
    if (!this.isOfUse) return false;
    if (offset % DATA_ALIGN !== 0 || into.length % DATA_ALIGN !== 0) return false;
    if (cachedBytes(this.#fd, offset, into.length) > into.length / 2) return false;
    this.#block.writeBigUInt64LE(addressOf(into), IOCB.buffer);
    this.#block.writeBigUInt64LE(BigInt(into.length), IOCB.length);
    this.#block.writeBigInt64LE(BigInt(offset), IOCB.offset);
    const startedMs = performance.now();
    if (call('submit', this.#context, 1, this.#list) !== 1) return false;
    this.#isSlow = performance.now() - startedMs > SLOW_MS;
    this.#wantedBytes = into.length;
    return true;
  }

  /** Waits until what was begun has ended, if anything was. @returns whether all of it is there; whoever reads it anew hears why not */
  end(): boolean {
    const wanted = this.#wantedBytes;
    if (wanted === undefined) return false;
    const event = Buffer.alloc(EVENT.bytes);
    while (call('getEvents', this.#context, 1, 1, event, null) !== 1)
      // what cannot be waited for still writes to the memory, which nobody takes from a thread that has ended
      if (koffi.errno() !== EINTR) process.exit(1);
    this.#wantedBytes = undefined;
    const isThere = event.readBigInt64LE(EVENT.result) === BigInt(wanted);
    this.#doubts = isThere && !this.#isSlow ? 0 : this.#doubts + 1;
    return isThere;
  }

  /** Waits as `end`. */
  close(): void {
    this.end();
    closeSync(this.#directFd);
    // the kernel takes its time (25 ms), which is a thread of libuv's
    kernel()!.destroy.async(SYSCALLS[arch]!.destroy, this.#context, () => {});
  }
}

let found: Kernel | undefined;

/** The calls of this kernel, declared when they are first needed: each thread pays for them. @returns undefined on other machines */
function kernel(): Kernel | undefined {
  if (found || !SYSCALLS[arch]) return found;
  const libc = koffi.load('libc.so.6');
  const declared = Object.entries(PARAMETERS).map(([name, parameters]) => [
    name,
    libc.func('syscall', 'long', ['long', ...parameters]),
  ]);
  found = Object.fromEntries(declared) as Kernel;
  return found;
}

/** Bytes of a page of this machine. */
let pageBytes = 0;

const call = (name: keyof Kernel, ...values: unknown[]): number =>
  Number(kernel()![name](SYSCALLS[arch]![name], ...values));

/** Where memory is, which the caller has to keep: nobody else does so for a number. */
const addressOf = (memory: Buffer): bigint => koffi.address(memory as never) as bigint;

/** Bytes of a range that are in the page cache; below zero where nobody can tell. */
function cachedBytes(fd: number, offset: number, lengthBytes: number): number {
  const range = Buffer.alloc(CACHE_RANGE_BYTES);
  range.writeBigUInt64LE(BigInt(offset), 0);
  range.writeBigUInt64LE(BigInt(lengthBytes), 8);
  const stat = Buffer.alloc(CACHE_STAT_BYTES);
  if (call('cacheStat', fd, range, stat, 0) !== 0) return -1;
  pageBytes ||= pageSize();
  return Number(stat.readBigUInt64LE()) * pageBytes;
}
