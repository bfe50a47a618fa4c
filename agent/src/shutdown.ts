import type { Logger } from '@virtkeep/shared/log';
import type { OperationRunner } from './operations/runner.ts';

/** States of the agent's end, in order: each signal, or the end of a state's time, leads to the next. */
export type ShutdownState = 'serving' | 'draining' | 'aborting' | 'stopped';

export interface ShutdownDependencies {
  runner: Pick<OperationRunner, 'drain' | 'idle' | 'abortAll' | 'activeCount'>;
  log: Logger;
  drainTimeoutMs: number;
  undoTimeoutMs: number;
  /** Called when draining begins. */
  onDraining(): void;
}

/**
 * Two-stage stop. `draining`: nothing new is taken, running operations may end. `aborting`: those still running are
 * stopped and undo what they did. `stopped`: nothing runs, or its time is over; the journal holds what is not undone.
 */
export class Shutdown {
  readonly #dependencies: ShutdownDependencies;
  readonly #stopped = Promise.withResolvers<void>();
  #state: ShutdownState = 'serving';
  #stage = new AbortController();

  constructor(dependencies: ShutdownDependencies) {
    this.#dependencies = dependencies;
  }

  get state(): ShutdownState {
    return this.#state;
  }

  /** Resolves in the state `stopped`. */
  get stopped(): Promise<void> {
    return this.#stopped.promise;
  }

  /** A signal has come: begins the stop, or goes to its next state at once. */
  signal(name: string): void {
    this.#dependencies.log.info('signal received', { signal: name, state: this.#state });
    if (this.#state === 'serving') void this.#run();
    else this.#stage.abort();
  }

  async #run(): Promise<void> {
    const { runner, drainTimeoutMs, undoTimeoutMs, onDraining } = this.#dependencies;
    this.#enter('draining');
    runner.drain();
    onDraining();
    if (!(await this.#idleWithin(drainTimeoutMs))) {
      this.#enter('aborting');
      runner.abortAll();
      await this.#idleWithin(undoTimeoutMs);
    }
    this.#enter('stopped');
    this.#stopped.resolve();
  }

  #enter(state: ShutdownState): void {
    this.#state = state;
    this.#dependencies.log.info(`agent is ${state}`, {
      state,
      operations: this.#dependencies.runner.activeCount,
    });
  }

  async #idleWithin(limitMs: number): Promise<boolean> {
    this.#stage = new AbortController();
    const limit = AbortSignal.any([this.#stage.signal, AbortSignal.timeout(limitMs)]);
    return this.#dependencies.runner.idle(limit).then(
      () => true,
      () => false,
    );
  }
}
