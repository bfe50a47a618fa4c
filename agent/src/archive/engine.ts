import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { abortReason } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import type { BlockRun, Codec } from './block.worker.ts';
import type { BlockSource } from './block-source.ts';
import type { Fault } from './fault.ts';
import { BLOCK_BYTES, createRingMemory, Ring } from './ring.ts';
import type { Order, RunResult } from './sequencer.worker.ts';

const MAX_WORKERS = 8;
const DEFAULT_MAX_WORKERS = 4;
/** Slots beyond one a worker: one being written, one waiting. Each costs 4–8 MiB. */
const SPARE_SLOTS = 2;
/** Small heaps: the threads hold next to nothing in JavaScript. */
const HEAP = { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 2 };

/** The paths a fault is reported with. */
export interface FaultPaths {
  source: string;
  target: string;
}

export interface PumpJob {
  source: BlockSource;
  codec: Codec;
  hash: boolean;
  output: boolean;
  paths: FaultPaths;
}

interface Reply {
  done?: true;
  answer?: unknown;
  fault?: Fault;
  progress?: number;
}

/**
 * The threads that move bytes: workers that read, compress or decompress blocks side by side, and one sequencer that
 * hashes and writes them in order. The main thread only gives orders. One order at a time.
 */
export class Engine {
  readonly #sequencer: Thread;
  readonly #workers: Thread[];
  readonly #ring: Ring;
  #closed = false;

  constructor(workers: number | undefined) {
    const wanted = workers ?? Math.min(availableParallelism(), DEFAULT_MAX_WORKERS);
    const count = Math.max(1, Math.min(MAX_WORKERS, wanted));
    const memory = createRingMemory(count + SPARE_SLOTS);
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
    return (await this.#watched(signal, paths, [this.#sequencer.ask(order, onProgress)])) as T;
  }

  /** Sends the blocks of a source through the workers and the sequencer. Errors as {@link Engine.order}. */
  async pump(job: PumpJob, signal: AbortSignal, onProgress?: Progress): Promise<RunResult> {
    this.#ring.reset();
    const { lengthBytes } = job.source;
    const blockCount = Math.ceil(lengthBytes / BLOCK_BYTES);
    const { hash, output } = job;
    const run = { lengthBytes, blockCount, codec: job.codec.kind, hash, output };
    const blockRun: BlockRun = { source: job.source, codec: job.codec, blockCount };
    const sequenced = this.#sequencer.ask({ op: 'run', run }, onProgress);
    const filled = this.#workers.map(worker => worker.ask(blockRun));
    return (await this.#watched(signal, job.paths, [sequenced, ...filled])) as RunResult;
  }

  /** Stops the threads; a running order is cancelled first. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#ring.cancel();
    await Promise.all([this.#sequencer, ...this.#workers].map(thread => thread.stop()));
  }

  /** Waits for all threads; the first fault or the signal stops the others, and all have stopped on return. */
  async #watched(signal: AbortSignal, paths: FaultPaths, asked: Promise<Reply>[]): Promise<unknown> {
    const onAbort = () => this.#ring.cancel();
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    let first: Fault | undefined;
    const watch = async (reply: Promise<Reply>) => {
      const { fault, answer } = await reply;
      if (fault !== undefined && first === undefined) {
        first = fault;
        this.#ring.cancel();
      }
      return answer;
    };
    try {
      const answers = await Promise.all(asked.map(watch));
      if (signal.aborted) throw abortReason(signal);
      if (first !== undefined) throw errorOf(first, paths);
      return answers[0];
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }
}

export type Progress = (bytesDone: number) => void;

/** One worker thread that answers one message at a time; a crash is answered as an internal fault. */
class Thread {
  readonly #worker: Worker;
  #answer: ((reply: Reply) => void) | undefined;
  #onProgress: Progress | undefined;
  #dead: Fault | undefined;

  constructor(url: URL, memory: object) {
    this.#worker = new Worker(url, { workerData: memory, resourceLimits: HEAP });
    this.#worker.on('message', (reply: Reply) => {
      if (reply.progress === undefined) this.#settle(reply);
      else this.#onProgress?.(reply.progress);
    });
    const die = (reason: string) => {
      this.#dead ??= { kind: 'internal', reason };
      this.#settle({ fault: this.#dead });
    };
    this.#worker.on('error', error => die(`a worker thread failed: ${String(error)}`));
    this.#worker.on('exit', () => die('a worker thread ended'));
  }

  ask(message: unknown, onProgress?: Progress): Promise<Reply> {
    if (this.#dead !== undefined) return Promise.resolve({ fault: this.#dead });
    this.#onProgress = onProgress;
    return new Promise(resolve => {
      this.#answer = resolve;
      this.#worker.postMessage(message);
    });
  }

  async stop(): Promise<void> {
    await this.#worker.terminate();
  }

  #settle(reply: Reply): void {
    const answer = this.#answer;
    this.#answer = undefined;
    answer?.(reply);
  }
}

function errorOf(fault: Fault, paths: FaultPaths): VirtkeepError {
  const cause = Object.assign(new Error(fault.reason), fault.code === undefined ? {} : { code: fault.code });
  switch (fault.kind) {
    case 'canceled':
      return new VirtkeepError('canceled');
    case 'source_io':
      return fromIoError(cause, 'reading', paths.source);
    case 'target_io':
      return fromIoError(cause, 'writing', paths.target);
    case 'source_short':
      return new VirtkeepError('io_failed', {
        operation: 'reading',
        path: paths.source,
        reason: fault.reason,
      });
    case 'corrupt':
      return new VirtkeepError('archive_damaged', { path: paths.source, reason: fault.reason });
    case 'unsupported':
      return new VirtkeepError('archive_unsupported', { path: paths.source, reason: fault.reason });
    case 'internal':
      return new VirtkeepError('internal', { request_id: '-' }, { cause });
  }
}
