import { LaneWorker } from './lane-worker.ts';
import type { OpenRequest } from './messages.ts';

export interface PoolSettings {
  request: OpenRequest;
  /** A worker idle for so long is ended, ms. */
  idleMs: number;
  /** Workers that stay when idle. */
  keep: number;
}

/** How long `close` waits for workers whose call is about to return. */
const CLOSE_MS = 2000;

/**
 * The workers of a connection, shared by its lanes, which bound how many they hold. Any worker can run any call, so an idle
 * one serves whichever lane asks first: a thread costs 8 to 12 MB, and a sequence of calls of several kinds needs only one.
 */
export class WorkerPool {
  readonly #settings: PoolSettings;
  readonly #workers = new Set<LaneWorker>();
  readonly #idle: LaneWorker[] = [];
  /** Workers in calls nobody waits for any more. */
  readonly #strays = new Set<LaneWorker>();
  readonly #onFree: (() => void)[] = [];
  #closed = false;

  constructor(settings: PoolSettings) {
    this.#settings = settings;
  }

  /** Calls the listener whenever a worker came back or ended. */
  whenFree(listener: () => void): void {
    this.#onFree.push(listener);
  }

  /** An idle worker, else a new one; undefined when not growing and a busy one is expected back. */
  take(grow: boolean): LaneWorker | undefined {
    const idle = this.#idle.pop();
    if (idle || (!grow && this.#workers.size > this.#strays.size)) return idle;
    const worker: LaneWorker = new LaneWorker(this.#settings.request, () => this.#forget(worker));
    this.#workers.add(worker);
    return worker;
  }

  /** Nobody waits for the worker's call any more. */
  writeOff(worker: LaneWorker): void {
    this.#strays.add(worker);
  }

  /** Takes a worker back whose call has returned. */
  give(worker: LaneWorker): void {
    this.#strays.delete(worker);
    if (this.#workers.has(worker) && !this.#closed) this.#rest(worker);
    for (const listener of this.#onFree) listener();
  }

  /** Ends the workers; one that is stuck in libvirt ends when its call returns. */
  async close(): Promise<void> {
    this.#closed = true;
    const ends = Promise.all([...this.#workers].map(worker => worker.close()));
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, CLOSE_MS);
    await Promise.race([ends, late]);
    clearTimeout(timer);
    for (const worker of this.#workers) worker.unref();
  }

  #rest(worker: LaneWorker): void {
    this.#idle.push(worker);
    worker.startIdleTimer(this.#settings.idleMs, () => {
      if (this.#idle.length <= this.#settings.keep) return;
      this.#takeFromIdle(worker);
      void worker.close();
    });
  }

  #forget(worker: LaneWorker): void {
    this.#workers.delete(worker);
    this.#strays.delete(worker);
    this.#takeFromIdle(worker);
  }

  #takeFromIdle(worker: LaneWorker): void {
    const at = this.#idle.indexOf(worker);
    if (at >= 0) this.#idle.splice(at, 1);
  }
}
