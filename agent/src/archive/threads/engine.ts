import { availableParallelism } from 'node:os';
import { clearTimeout, setTimeout } from 'node:timers';
import { setTimeout as delay } from 'node:timers/promises';
import { BLOCK_BYTES } from '../format/layout.ts';
import type { Throttle } from '../format/types.ts';
import type { BlockRun, Codec } from './block.worker.ts';
import type { BlockSource } from './block-source.ts';
import { giveRingMemory, Ring, type RingMemory, type RingUse, takeRingMemory } from './ring.ts';
import type { Order, RunResult } from './sequencer.worker.ts';
import { type FaultPaths, type Progress, settled, Thread } from './thread.ts';

const MAX_WORKERS = 8;
const DEFAULT_MAX_WORKERS = 4;
/**
 * Slots beyond one a worker: the one being written, and one for whoever is done before a slower one that comes before it. Each costs
 * 8 MiB. Of many engines at once the others have work for the cores while one waits, so these do without the second.
 */
const SPARE_SLOTS = 2;
const CROWD = 2;
const USE: Record<Codec['kind'], RingUse> = {
  store: 'plain',
  compress: 'compressing',
  decompress: 'decompressing',
  carry: 'decompressing',
};
/** How long a limited run may wait for who pays. */
const LOOK_MS = 5;
/** Paid at a time, whole KiB. */
const PAYMENT_BYTES = 1024 * 1024;

/**
 * Threads of closed engines, kept a while for the next: to start them costs a fifth of a second of processor time, more than
 * all else of a small archive. Their memories are kept longer (see `giveRingMemory`).
 */
const resting: Crew[] = [];
/** Crews of engines that are not closed. */
let working = 0;
const MAX_RESTING = 2;
const REST_MS = 10_000;

/** The threads of an engine, and the memory they share. */
interface Crew {
  memory: RingMemory;
  sequencer: Thread;
  workers: Thread[];
  timer?: NodeJS.Timeout;
}

const threadsOf = ({ sequencer, workers }: Crew): Thread[] => [sequencer, ...workers];

const isAlive = (crew: Crew): boolean => threadsOf(crew).every(thread => thread.isAlive);

function startCrew(count: number): Crew {
  const memory = takeRingMemory(count + SPARE_SLOTS);
  const start = (url: URL) => new Thread(url, memory);
  const sequencer = start(new URL('./sequencer.worker.ts', import.meta.url));
  const url = new URL('./block.worker.ts', import.meta.url);
  return { memory, sequencer, workers: Array.from({ length: count }, () => start(url)) };
}

function takeCrew(count: number): Crew {
  const crew = restedCrew(count) ?? startCrew(count);
  working += 1;
  return crew;
}

function restedCrew(count: number): Crew | undefined {
  const at = resting.findIndex(crew => crew.workers.length === count && isAlive(crew));
  if (at === -1) return undefined;
  const crew = resting.splice(at, 1)[0]!;
  clearTimeout(crew.timer);
  for (const thread of threadsOf(crew)) thread.hold(true);
  return crew;
}

/** Keeps threads that have no order for a while, or ends them. */
async function giveCrew(crew: Crew): Promise<void> {
  working -= 1;
  // the process may end while they rest, and must not while they load
  await Promise.all(threadsOf(crew).map(thread => thread.loaded));
  if (!isAlive(crew)) return await endCrew(crew);
  for (const thread of threadsOf(crew)) thread.hold(false);
  resting.push(crew);
  crew.timer = setTimeout(() => void dismiss(crew), REST_MS).unref();
  if (resting.length > MAX_RESTING) await dismiss(resting[0]!);
}

async function dismiss(crew: Crew): Promise<void> {
  clearTimeout(crew.timer);
  resting.splice(resting.indexOf(crew), 1);
  await endCrew(crew);
}

async function endCrew(crew: Crew): Promise<void> {
  // a thread that died may have left a read behind that still writes there (and its context, which ends with the process)
  const isKept = isAlive(crew);
  await Promise.all(threadsOf(crew).map(thread => thread.stop()));
  if (isKept) giveRingMemory(crew.memory);
}

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
  readonly #crew: Crew;
  readonly #ring: Ring;
  #running: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(workers: number | undefined) {
    const desired = workers ?? Math.min(availableParallelism(), DEFAULT_MAX_WORKERS);
    this.#crew = takeCrew(Math.max(1, Math.min(MAX_WORKERS, desired)));
    this.#ring = new Ring(this.#crew.memory);
    this.#ring.reset();
    this.#ring.setPiece(undefined);
  }

  /**
   * Gives the sequencer one order.
   * @throws VirtkeepError canceled, disk_full, io_failed, archive_damaged; after one the output is lost
   */
  async order<T>(order: Order, paths: FaultPaths, signal: AbortSignal, onProgress?: Progress): Promise<T> {
    return (await this.#run(() => {
      this.#ring.reset();
      return settled(this.#ring, signal, paths, [this.#crew.sequencer.ask(order, onProgress)]);
    })) as T;
  }

  /** Sends the blocks of a source through the workers and the sequencer. Errors as {@link Engine.order}. */
  async pump(job: PumpJob, signal: AbortSignal, onProgress?: Progress): Promise<RunResult> {
    return await this.#run(() => this.#pump(job, signal, onProgress));
  }

  async #pump(job: PumpJob, signal: AbortSignal, onProgress?: Progress): Promise<RunResult> {
    this.#ring.reset(USE[job.codec.kind], working >= CROWD);
    this.#ring.setPiece(job.throttle?.pieceBytes?.());
    if (job.throttle) this.#ring.limit();
    const { lengthBytes } = job.source;
    const blockCount = Math.ceil(lengthBytes / BLOCK_BYTES);
    const { hash, output } = job;
    const run = { lengthBytes, blockCount, codec: job.codec.kind, hash, output };
    const blockRun: BlockRun = { source: job.source, codec: job.codec, blockCount, hash };
    const sequenced = this.#crew.sequencer.ask({ op: 'run', run }, onProgress);
    const filled = this.#crew.workers.map(worker => worker.ask(blockRun));
    const ended = new AbortController();
    const paying = job.throttle && this.#pay(job.throttle, AbortSignal.any([signal, ended.signal]));
    try {
      return (await settled(this.#ring, signal, job.paths, [sequenced, ...filled])) as RunResult;
    } finally {
      ended.abort();
      await paying;
    }
  }

  /** Others may have the threads once this engine is closed. */
  async #run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closed) throw new Error('an order to closed threads');
    const running = work();
    this.#running = running;
    return await running;
  }

  /** Lets the workers read as fast as they may. */
  async #pay(throttle: Throttle, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      this.#ring.setPiece(throttle.pieceBytes?.());
      const bytes = Math.min(this.#ring.owed, PAYMENT_BYTES);
      if (bytes > 0) {
        await throttle.take(bytes, signal);
        this.#ring.pay(bytes);
      } else await delay(LOOK_MS, undefined, { signal }).catch(() => {});
    }
  }

  /** Lets the threads go. A running order is cancelled first, and its end waited for: a system call that hangs could not be ended either. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#ring.cancel();
    await this.#running.catch(() => {});
    await giveCrew(this.#crew);
  }
}
