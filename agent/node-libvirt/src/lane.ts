import type { CallName } from './calls.ts';
import { type ErrorFields, type ErrorKind, LibvirtError, ownError } from './error.ts';
import type { LaneWorker, Outcome } from './lane-worker.ts';
import { type Gate, giveUp, newGate } from './messages.ts';
import type { WorkerPool } from './worker-pool.ts';

export interface LaneSettings {
  /** Workers for calls somebody waits for. */
  size: number;
  /** Further workers: in the place of those stuck in abandoned calls, and for urgent calls. */
  reserve: number;
  maxQueued: number;
  /** ms; 0 = none. */
  timeoutMs: number;
  pool: WorkerPool;
  /** Of the connection, for errors. */
  uri: string;
}

export interface LaneCall {
  name: CallName;
  target: readonly string[];
  args: readonly unknown[];
  urgent: boolean;
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
}

interface Job extends LaneCall {
  id: number;
  gate: Gate;
  /** By performance.now(). */
  sinceMs: number;
  resolve: (value: unknown) => void;
  reject: (error: LibvirtError) => void;
  worker?: LaneWorker;
  stopWaiting: () => void;
}

/**
 * A call waits so long for a busy worker before another one starts, which takes about as long and 8 to 12 MB. Urgent calls
 * do not wait.
 */
const GROW_MS = 100;

/**
 * A queue of calls. A worker runs one call at a time. When the caller of a running call gives up, the worker becomes a
 * stray until libvirt returns, and another takes its place: at most `size` workers serve a lane, it holds `size + reserve` at
 * most. Urgent calls go first and may use the reserve too.
 */
export class Lane {
  readonly #settings: LaneSettings;
  /** Workers in calls of this lane, strays too. */
  readonly #held = new Set<LaneWorker>();
  /** Jobs somebody waits for, by the worker that runs them. */
  readonly #running = new Map<LaneWorker, Job>();
  readonly #urgent: Job[] = [];
  readonly #queue: Job[] = [];
  #lastId = 0;
  #growTimer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(settings: LaneSettings) {
    this.#settings = settings;
    settings.pool.whenFree(() => this.#dispatch());
  }

  /** Runs a call, or puts it in the queue. @throws LibvirtError */
  run(call: LaneCall): Promise<unknown> {
    if (this.#closed)
      return Promise.reject(this.#failure(ownError('closed', 'the connection is closed'), call));
    if (call.signal?.aborted) {
      return Promise.reject(
        this.#failure(ownError('aborted', 'aborted before the call'), call, call.signal.reason),
      );
    }
    if (this.#urgent.length + this.#queue.length >= this.#settings.maxQueued) {
      return Promise.reject(this.#failure(ownError('busy', 'too many libvirt calls are waiting'), call));
    }
    return new Promise((resolve, reject) => {
      const job: Job = {
        ...call,
        id: ++this.#lastId,
        gate: newGate(),
        sinceMs: performance.now(),
        resolve,
        reject,
        stopWaiting: () => {},
      };
      this.#watch(job);
      (call.urgent ? this.#urgent : this.#queue).push(job);
      this.#dispatch();
    });
  }

  /** Fails all calls; the pool ends the workers. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#growTimer);
    for (const job of [...this.#urgent, ...this.#queue, ...this.#running.values()]) {
      this.#giveUp(job, 'closed', 'the connection was closed');
    }
  }

  /** Rejects the job when its signal or its time says so. */
  #watch(job: Job): void {
    const { signal, timeoutMs = this.#settings.timeoutMs } = job;
    const onAbort = () => this.#giveUp(job, 'aborted', 'the caller stopped waiting', signal?.reason);
    signal?.addEventListener('abort', onAbort);
    const onTime = () => this.#giveUp(job, 'timeout', `no answer within ${timeoutMs} ms`);
    const timer = timeoutMs > 0 ? setTimeout(onTime, timeoutMs) : undefined;
    job.stopWaiting = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    };
  }

  #giveUp(job: Job, kind: Exclude<ErrorKind, 'libvirt'>, message: string, cause?: unknown): void {
    job.stopWaiting();
    giveUp(job.gate);
    if (job.worker) {
      this.#running.delete(job.worker);
      this.#settings.pool.writeOff(job.worker);
    } else {
      const queue = job.urgent ? this.#urgent : this.#queue;
      queue.splice(queue.indexOf(job), 1);
    }
    job.reject(this.#failure(ownError(kind, message), job, cause));
    this.#dispatch();
  }

  #dispatch(): void {
    const { size, reserve, pool } = this.#settings;
    while (!this.#closed) {
      const urgent = this.#urgent.length > 0;
      const queue = urgent ? this.#urgent : this.#queue;
      const job = queue[0];
      if (!job || this.#held.size >= size + reserve || (!urgent && this.#running.size >= size)) return;
      const patienceMs = urgent ? 0 : job.sinceMs + GROW_MS - performance.now();
      const worker = pool.take(patienceMs <= 0);
      if (!worker) {
        this.#dispatchIn(patienceMs);
        return;
      }
      queue.shift();
      this.#start(job, worker);
    }
  }

  #dispatchIn(ms: number): void {
    clearTimeout(this.#growTimer);
    this.#growTimer = setTimeout(() => this.#dispatch(), Math.ceil(ms));
  }

  #start(job: Job, worker: LaneWorker): void {
    job.worker = worker;
    this.#held.add(worker);
    this.#running.set(worker, job);
    const { id, name, target, args, gate } = job;
    void worker.run({ id, name, target, args, gate }).then(outcome => this.#finish(job, worker, outcome));
  }

  #finish(job: Job, worker: LaneWorker, outcome: Outcome): void {
    // Not there: nobody waits any more, the worker was a stray.
    if (this.#running.get(worker) === job) {
      this.#running.delete(worker);
      job.stopWaiting();
      if ('error' in outcome) job.reject(this.#failure(outcome.error, job));
      else job.resolve(outcome.value);
    }
    this.#held.delete(worker);
    this.#settings.pool.give(worker);
  }

  #failure(fields: ErrorFields, call: LaneCall, cause?: unknown): LibvirtError {
    const { uri } = this.#settings;
    return new LibvirtError(fields, call.name, cause === undefined ? { uri } : { uri, cause });
  }
}
