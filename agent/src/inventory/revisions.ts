/**
 * Numbers the changes of the inventory, all of them in one row. The numbers grow across restarts of the agent, whatever the
 * node's wall clock does meanwhile, so that two of them can always be compared: a number of an earlier run is below all of this one's, and
 * whoever waits for it has what it meant with the first whole inventory.
 */
import type { Settings } from '../pools/index.ts';

const KEY = 'inventory.revisions_reserved';
/** Reserved at a time, so that a change costs no write; a restart skips the rest. */
const BLOCK = 1_000_000;

export class Revisions {
  readonly #settings: Settings;
  #newest: number;
  #reserved: number;

  /** @throws VirtkeepError journal_failed */
  constructor(settings: Settings) {
    this.#settings = settings;
    const stored = settings.get(KEY);
    // above what agents gave that reserved nothing: they began at the time of their start
    this.#newest = Math.max(Date.now() * 1000, typeof stored === 'number' ? stored : 0);
    this.#reserved = this.#newest;
  }

  /** The number of the newest change. */
  get newest(): bigint {
    return BigInt(this.#newest);
  }

  /** The number of a change that is made now. */
  next(): bigint {
    this.#newest += 1;
    if (this.#newest > this.#reserved) this.#reserve();
    return this.newest;
  }

  /** A journal that cannot be written is no reason to see nothing: then only the clock keeps the numbers of the next run above these. */
  #reserve(): void {
    this.#reserved = this.#newest + BLOCK;
    try {
      this.#settings.set(KEY, this.#reserved);
    } catch {}
  }
}
