import type { Logger } from '@virtkeep/shared/log';

/** States of the controller's end; each signal, or the end of a state's time, leads to the next. */
export type ShutdownState = 'serving' | 'draining' | 'closing' | 'stopped';

export interface ShutdownDependencies {
  log: Logger;
  /** How long answers under way may take. */
  drainTimeoutMs: number;
  /** Refuse new work and let waiting answers end; resolves when nothing is under way. */
  drain: () => Promise<void>;
  /** Cut what is left. */
  close: () => Promise<void>;
}

/**
 * Two-stage stop. `draining`: changes are refused (503), waiting answers turn into 202, answers under way may end.
 * `closing`: connections are cut, the database is closed. Tasks go on: they run on the nodes.
 */
export class Shutdown {
  readonly #dependencies: ShutdownDependencies;
  readonly #stopped = Promise.withResolvers<void>();
  readonly #hurry = Promise.withResolvers<void>();
  #state: ShutdownState = 'serving';

  constructor(dependencies: ShutdownDependencies) {
    this.#dependencies = dependencies;
  }

  get state(): ShutdownState {
    return this.#state;
  }

  get isServing(): boolean {
    return this.#state === 'serving';
  }

  /** Resolves in the state `stopped`; rejects when closing failed. */
  get stopped(): Promise<void> {
    return this.#stopped.promise;
  }

  /** A signal has come: begins the stop; the second ends the draining at once. */
  signal(name: string): void {
    this.#dependencies.log.info('signal received', { signal: name, state: this.#state });
    if (this.#state === 'serving') this.#begin();
    else this.#hurry.resolve();
  }

  /** Begins the stop. @returns false: something has begun it before */
  stop(reason: string): boolean {
    this.#dependencies.log.warn('the controller stops of itself', { reason, state: this.#state });
    if (this.#state !== 'serving') return false;
    this.#begin();
    return true;
  }

  #begin(): void {
    this.#run().then(this.#stopped.resolve, this.#stopped.reject);
  }

  async #run(): Promise<void> {
    const { drain, close, drainTimeoutMs } = this.#dependencies;
    this.#enter('draining');
    const timer = setTimeout(() => this.#hurry.resolve(), drainTimeoutMs);
    try {
      await Promise.race([drain(), this.#hurry.promise]);
    } finally {
      clearTimeout(timer);
    }
    this.#enter('closing');
    await close();
    this.#enter('stopped');
  }

  #enter(state: ShutdownState): void {
    this.#state = state;
    this.#dependencies.log.info(`controller is ${state}`, { state });
  }
}
