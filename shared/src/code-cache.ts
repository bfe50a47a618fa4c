import { enableCompileCache, flushCompileCache } from 'node:module';
import { join } from 'node:path';

/**
 * Lets this process and its worker threads keep their stripped and compiled code on disk. Measured: without it each
 * thread loads the TypeScript stripper, 45 MiB in the main thread and 7 to 15 MiB in each worker.
 *
 * The place is NODE_COMPILE_CACHE, else systemd's CACHE_DIRECTORY, else node_modules/.cache. A place that cannot be
 * written costs memory and time, nothing else.
 */
export function useCodeCache(): void {
  const own = process.env.CACHE_DIRECTORY ?? join(import.meta.dirname, '../../node_modules/.cache');
  process.env.NODE_COMPILE_CACHE ??= join(own, 'virtkeep-code');
  enableCompileCache(process.env.NODE_COMPILE_CACHE);
}

/** Writes the cache now: Node itself does so only at an orderly exit. */
export const keepCodeCache = (): void => flushCompileCache();
