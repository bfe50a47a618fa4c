import { Worker } from 'node:worker_threads';
import { abortReason } from '@virtkeep/shared/abort';
import { codeCacheDirectory } from '@virtkeep/shared/code-cache';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import type { Fault } from './fault.ts';
import type { Ring } from './ring.ts';

/** Small heaps: the threads hold next to nothing in JavaScript. */
const HEAP = { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 2 };

/** What a worker posts: once that it is loaded; then, a message, any number of times progress and one answer or fault. */
export interface Reply {
  loaded?: true;
  done?: true;
  answer?: unknown;
  fault?: Fault;
  progress?: number;
}

/** The paths a fault is reported with. */
export interface FaultPaths {
  source: string;
  target: string;
}

export type Progress = (bytesDone: number) => void;

/** One worker thread that answers one message at a time; a crash is answered as an internal fault. */
export class Thread {
  readonly #worker: Worker;
  #answer: ((reply: Reply) => void) | undefined;
  #onProgress: Progress | undefined;
  #dead: Fault | undefined;
  readonly #loaded: Promise<void>;

  constructor(url: URL, memory: object) {
    this.#worker = new Worker(url, {
      workerData: memory,
      resourceLimits: HEAP,
      env: { NODE_COMPILE_CACHE: codeCacheDirectory() },
    });
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#loaded = promise;
    this.#worker.on('message', (reply: Reply) => {
      if (reply.loaded) resolve();
      else if (reply.progress === undefined) this.#settle(reply);
      else this.#onProgress?.(reply.progress);
    });
    const die = (reason: string) => {
      this.#dead ??= { kind: 'internal', reason };
      this.#settle({ fault: this.#dead });
      resolve();
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

  /** Loaded, or dead. */
  get loaded(): Promise<void> {
    return this.#loaded;
  }

  /** Whether it can still be asked. */
  get isAlive(): boolean {
    return this.#dead === undefined;
  }

  /** Whether the process stays for it. */
  hold(isHeld: boolean): void {
    if (isHeld) this.#worker.ref();
    else this.#worker.unref();
  }

  /** Waits until the thread is loaded: ending a thread that loads a native module would end the whole process. */
  async stop(): Promise<void> {
    await this.#loaded;
    await this.#worker.terminate();
  }

  #settle(reply: Reply): void {
    const answer = this.#answer;
    this.#answer = undefined;
    answer?.(reply);
  }
}

/**
 * Waits for the replies of all threads. The first fault or the signal stops the others through the ring's cancel flag, and all
 * have stopped on return. @returns the answer of the first thread
 */
export async function settled(
  ring: Ring,
  signal: AbortSignal,
  paths: FaultPaths,
  replies: Promise<Reply>[],
): Promise<unknown> {
  const onAbort = () => ring.cancel();
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  let first: Fault | undefined;
  const watch = async (reply: Promise<Reply>) => {
    const { fault, answer } = await reply;
    if (fault !== undefined && first === undefined) {
      first = fault;
      ring.cancel();
    }
    return answer;
  };
  try {
    const answers = await Promise.all(replies.map(watch));
    if (signal.aborted) throw abortReason(signal);
    if (first !== undefined) throw errorOf(first, paths);
    return answers[0];
  } finally {
    signal.removeEventListener('abort', onAbort);
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
