import { Worker } from 'node:worker_threads';
import { type ErrorFields, ownError } from './error.ts';
import {
  type CallRequest,
  type FromCallWorker,
  type OpenRequest,
  type ToCallWorker,
  workerUrl,
} from './messages.ts';

/** Heap of a worker: it holds one XML or agent answer (10 MiB at most) at a time; what grows beyond is a fault. */
const HEAP = { maxYoungGenerationSizeMb: 4, maxOldGenerationSizeMb: 96 };

/** The outcome of one call in a worker. */
export type Outcome = { value: unknown } | { error: ErrorFields };

/** A thread with its own connection that runs one call at a time. */
export class LaneWorker {
  readonly #worker: Worker;
  readonly #exited: Promise<void>;
  #settle: ((outcome: Outcome) => void) | undefined;
  #idleTimer: NodeJS.Timeout | undefined;

  /** @param onExit called once when the thread has ended, asked to or not */
  constructor(request: OpenRequest, onExit: () => void) {
    this.#worker = new Worker(workerUrl('call'), { workerData: request, execArgv: [], resourceLimits: HEAP });
    this.#worker.on('message', (answer: FromCallWorker) => this.#finish(answer));
    let reason = 'the worker ended during the call';
    this.#worker.on('error', error => {
      reason = `the worker failed: ${error}`;
    });
    this.#exited = new Promise(resolve => {
      this.#worker.on('exit', () => {
        this.stopIdleTimer();
        onExit();
        this.#finish({ error: ownError('worker', reason) });
        resolve();
      });
    });
  }

  /** Runs a call; never rejects. One at a time. */
  run(call: CallRequest): Promise<Outcome> {
    this.stopIdleTimer();
    return new Promise(resolve => {
      this.#settle = resolve;
      this.#post({ call });
    });
  }

  /** Asks the thread to end: at once when idle, else when its call returns (a native call cannot be interrupted). */
  close(): Promise<void> {
    this.stopIdleTimer();
    this.#post({ close: true });
    return this.#exited;
  }

  /** Lets the process end without waiting for this thread's messages. */
  unref(): void {
    this.#worker.unref();
  }

  startIdleTimer(afterMs: number, onIdle: () => void): void {
    this.#idleTimer = setTimeout(onIdle, afterMs).unref();
  }

  stopIdleTimer(): void {
    clearTimeout(this.#idleTimer);
  }

  #post(message: ToCallWorker): void {
    this.#worker.postMessage(message);
  }

  #finish(outcome: Outcome): void {
    const settle = this.#settle;
    this.#settle = undefined;
    settle?.(outcome);
  }
}
