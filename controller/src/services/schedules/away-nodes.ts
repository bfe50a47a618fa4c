/** Nodes that are away, and how long they are waited for. */
import type { SchedulerDependencies } from './needs.ts';

/** So long is a node that is away waited for; then what is to be done there fails. */
export const NODE_WAIT_MS = 1_800_000;

export class AwayNodes {
  readonly #dependencies: Pick<SchedulerDependencies, 'surroundings' | 'elapsedMs'>;
  /** Since when, as was first seen; in ms of `elapsedMs`: the clock may jump meanwhile. */
  readonly #since = new Map<string, number>();

  constructor(dependencies: Pick<SchedulerDependencies, 'surroundings' | 'elapsedMs'>) {
    this.#dependencies = dependencies;
  }

  /** Those that are back are waited for anew when they are away again, though nobody has asked meanwhile. */
  forgetReturned(): void {
    for (const nodeId of this.#since.keys())
      if (this.#dependencies.surroundings.isReady(nodeId)) this.#since.delete(nodeId);
  }

  /** True while a node that is away may still come back in time; null: no node. */
  waitsFor(nodeId: string | null): boolean {
    const { surroundings, elapsedMs } = this.#dependencies;
    if (nodeId === null || surroundings.isReady(nodeId)) {
      if (nodeId !== null) this.#since.delete(nodeId);
      return false;
    }
    const now = elapsedMs();
    const since = this.#since.get(nodeId) ?? now;
    this.#since.set(nodeId, since);
    return now - since < NODE_WAIT_MS;
  }
}
