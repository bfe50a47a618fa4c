import { setTimeout as pause } from 'node:timers/promises';
import { hasKey } from '@virtkeep/shared/errors';

const AGAIN_MS = 1000;

/**
 * Tries again what has to be written sooner or later while the database is away, such as the end of a task that nobody else would end.
 * A controller that goes meanwhile leaves it to the next one, which looks after tasks that are open.
 * @throws what else it throws
 */
export async function untilStored<T>(work: () => Promise<T>, againMs = AGAIN_MS): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!hasKey(error, 'database_unavailable')) throw error;
    }
    await pause(againMs, undefined, { ref: false });
  }
}
