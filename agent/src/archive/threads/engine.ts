import { availableParallelism } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { BLOCK_BYTES } from '../format/layout.ts';
import type { Throttle } from '../format/types.ts';
import type { BlockRun, Codec } from './block.worker.ts';
import type { BlockSource } from './block-source.ts';
import { giveRingMemory, Ring, type RingMemory, takeRingMemory } from './ring.ts';
import type { Order, RunResult } from './sequencer.worker.ts';
import { type FaultPaths, type Progress, settled, Thread } from './thread.ts';

const MAX_WORKERS = 8;
const DEFAULT_MAX_WORKERS = 4;
/**
 * Slots beyond one a worker: the one being written. Each costs 8 MiB; a second made compression no faster. A run that
 * does not compress has one more in the same memory, one that waits: without it copying took 7 % longer.
 */
const SPARE_SLOTS = 1;
/** How long a limited run may wait for who pays. */
const LOOK_MS = 5;
/** Paid at a time, whole KiB. */
const PAYMENT_BYTES = 1024 * 1024;

export interface PumpJob {
  source: BlockSource;
  codec: Codec;
  hash: boolean;
  output: boolean;
  paths: FaultPaths;
  throttle?: Throttle | undefined;
}

/**
 * The threads that move bytes: workers that read, compress or decompress blocks side by side, and one sequencer that
 * hashes and writes them in order. The main thread only gives orders. One order at a time.
 */
export class Engine {
  readonly #sequencer: Thread;
  readonly #workers: Thread[];
  readonly #memory: RingMemory;
  readonly #ring: Ring;
  #closed = false;

  constructor(workers: number | undefined) {
    const desired = workers ?? Math.min(availableParallelism(), DEFAULT_MAX_WORKERS);
    const count = Math.max(1, Math.min(MAX_WORKERS, desired));
    const memory = takeRingMemory(count + SPARE_SLOTS);
    this.#memory = memory;
    this.#ring = new Ring(memory);
    this.#ring.reset();
    this.#sequencer = new Thread(new URL('./sequencer.worker.ts', import.meta.url), memory);
    const url = new URL('./block.worker.ts', import.meta.url);
    this.#workers = Array.from({ length: count }, () => new Thread(url, memory));
  }

  /**
   * Gives the sequencer one order.
   * @throws VirtkeepError canceled, disk_full, io_failed, archive_damaged; after one the output is lost
   */
  async order<T>(order: Order, paths: FaultPaths, signal: AbortSignal, onProgress?: Progress): Promise<T> {
    this.#ring.reset();
    return (await settled(this.#ring, signal, paths, [this.#sequencer.ask(order, onProgress)])) as T;
  }

  /** Sends the blocks of a source through the workers and the sequencer. Errors as {@link Engine.order}. */
  async pump(job: PumpJob, signal: AbortSignal, onProgress?: Progress): Promise<RunResult> {
    this.#ring.reset(job.codec.kind !== 'store');
    if (job.throttle) this.#ring.limit();
    const { lengthBytes } = job.source;
    const blockCount = Math.ceil(lengthBytes / BLOCK_BYTES);
    const { hash, output } = job;
    const run = { lengthBytes, blockCount, codec: job.codec.kind, hash, output };
    const blockRun: BlockRun = { source: job.source, codec: job.codec, blockCount };
    const sequenced = this.#sequencer.ask({ op: 'run', run }, onProgress);
    const filled = this.#workers.map(worker => worker.ask(blockRun));
    const ended = new AbortController();
    const paying = job.throttle && this.#pay(job.throttle, AbortSignal.any([signal, ended.signal]));
    try {
      return (await settled(this.#ring, signal, job.paths, [sequenced, ...filled])) as RunResult;
    } finally {
      ended.abort();
      await paying;
    }
  }

  /** Lets the workers read as fast as they may. */
  async #pay(throttle: Throttle, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const bytes = Math.min(this.#ring.owed, PAYMENT_BYTES);
      if (bytes > 0) {
        await throttle.take(bytes, signal);
        this.#ring.pay(bytes);
      } else await delay(LOOK_MS, undefined, { signal }).catch(() => {});
    }
  }

  /** Stops the threads; a running order is cancelled first. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#ring.cancel();
    await Promise.all([this.#sequencer, ...this.#workers].map(thread => thread.stop()));
    giveRingMemory(this.#memory);
  }
}
