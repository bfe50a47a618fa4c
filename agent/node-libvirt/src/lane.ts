import type { CallName } from './calls.ts';
import { type ErrorFields, type ErrorKind, LibvirtError, ownError } from './error.ts';
import { LaneWorker, type Outcome } from './lane-worker.ts';
import { type Gate, giveUp, newGate, type OpenRequest } from './messages.ts';

export interface LaneSettings {
  /** Workers for calls somebody waits for. */
  size: number;
  /** Further workers: in the place of those stuck in abandoned calls, and for urgent calls. */
  reserve: number;
  maxQueued: number;
  idleMs: number;
  /** Workers that stay when idle. */
  keep: number;
  /** ms; 0 = none. */
  timeoutMs: number;
  request: OpenRequest;
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
  resolve: (value: unknown) => void;
  reject: (error: LibvirtError) => void;
  worker?: LaneWorker;
  stopWaiting: () => void;
}

/** How long `close` waits for workers whose call is about to return. */
const CLOSE_MS = 2000;

/**
 * A queue and its workers. A worker runs one call at a time. When the caller of a running call gives up, the worker becomes a
 * stray until libvirt returns, and another takes its place: at most `size` workers serve, `size + reserve` exist. Urgent calls go
 * first and may use the reserve too.
 */
export class Lane {
  readonly #settings: LaneSettings;
  readonly #workers = new Set<LaneWorker>();
  readonly #idle: LaneWorker[] = [];
  /** Jobs somebody waits for, by the worker that runs them. */
  readonly #running = new Map<LaneWorker, Job>();
  readonly #urgent: Job[] = [];
  readonly #queue: Job[] = [];
  #lastId = 0;
  #closed = false;

  constructor(settings: LaneSettings) {
    this.#settings = settings;
  }

  /** Runs a call, or puts it in the queue. @throws LibvirtError */
  run(call: LaneCall): Promise<unknown> {
    if (this.#closed) return Promise.reject(failure(ownError('closed', 'the connection is closed'), call));
    if (call.signal?.aborted) {
      return Promise.reject(
        failure(ownError('aborted', 'aborted before the call'), call, call.signal.reason),
      );
    }
    if (this.#urgent.length + this.#queue.length >= this.#settings.maxQueued) {
      return Promise.reject(failure(ownError('busy', 'too many libvirt calls are waiting'), call));
    }
    return new Promise((resolve, reject) => {
      const job: Job = {
        ...call,
        id: ++this.#lastId,
        gate: newGate(),
        resolve,
        reject,
        stopWaiting: () => {},
      };
      this.#watch(job);
      (call.urgent ? this.#urgent : this.#queue).push(job);
      this.#dispatch();
    });
  }

  /** Fails all calls and ends the workers; one that is stuck in libvirt ends when its call returns. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const job of [...this.#urgent, ...this.#queue, ...this.#running.values()]) {
      this.#giveUp(job, 'closed', 'the connection was closed');
    }
    const workers = [...this.#workers];
    const ends = Promise.all(workers.map(worker => worker.close()));
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, CLOSE_MS);
    await Promise.race([ends, late]);
    clearTimeout(timer);
    for (const worker of this.#workers) worker.unref();
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
    } else {
      const queue = job.urgent ? this.#urgent : this.#queue;
      queue.splice(queue.indexOf(job), 1);
    }
    job.reject(failure(ownError(kind, message), job, cause));
    this.#dispatch();
  }

  #dispatch(): void {
    while (!this.#closed) {
      const urgent = this.#urgent.length > 0;
      const queue = urgent ? this.#urgent : this.#queue;
      if (queue.length === 0 || (!urgent && this.#running.size >= this.#settings.size)) return;
      const worker = this.#idle.pop() ?? this.#spawn();
      if (!worker) return;
      this.#start(queue.shift()!, worker);
    }
  }

  #spawn(): LaneWorker | undefined {
    const { size, reserve, request } = this.#settings;
    if (this.#workers.size >= size + reserve) return undefined;
    const worker: LaneWorker = new LaneWorker(request, () => {
      this.#workers.delete(worker);
      this.#takeFromIdle(worker);
    });
    this.#workers.add(worker);
    return worker;
  }

  #start(job: Job, worker: LaneWorker): void {
    job.worker = worker;
    this.#running.set(worker, job);
    const { id, name, target, args, gate } = job;
    void worker.run({ id, name, target, args, gate }).then(outcome => this.#finish(job, worker, outcome));
  }

  #finish(job: Job, worker: LaneWorker, outcome: Outcome): void {
    // Not there: nobody waits any more, the worker was a stray.
    if (this.#running.get(worker) === job) {
      this.#running.delete(worker);
      job.stopWaiting();
      if ('error' in outcome) job.reject(failure(outcome.error, job));
      else job.resolve(outcome.value);
    }
    if (this.#workers.has(worker) && !this.#closed) this.#rest(worker);
    this.#dispatch();
  }

  #rest(worker: LaneWorker): void {
    this.#idle.push(worker);
    worker.startIdleTimer(this.#settings.idleMs, () => {
      if (this.#idle.length <= this.#settings.keep) return;
      this.#takeFromIdle(worker);
      void worker.close();
    });
  }

  #takeFromIdle(worker: LaneWorker): void {
    const at = this.#idle.indexOf(worker);
    if (at >= 0) this.#idle.splice(at, 1);
  }
}

function failure(fields: ErrorFields, call: LaneCall, cause?: unknown): LibvirtError {
  return new LibvirtError(fields, call.name, cause === undefined ? undefined : { cause });
}
