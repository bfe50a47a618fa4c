import { readdirSync } from 'node:fs';
import { getCompileCacheDir } from 'node:module';
import { codeCacheDirectory, keepCodeCache, useCodeCache } from '@virtkeep/shared/code-cache';
import { replaceProcess } from '@virtkeep/shared/replace-process';

/**
 * Settings of a small process. They count only when they are there before the process starts. Measured at the peak of a
 * compressed backup: one malloc arena for all threads 20 MiB, a small young generation 15 MiB, threads that start without
 * Node's snapshot 2.7 MiB each, small rather than fast code 10 MiB: what is to be fast is not JavaScript here.
 */
const MALLOC_ARENA_MAX = '1';
/**
 * Threads of libuv: a call on a file system that hangs keeps one until it ends, and Node's own number of four is soon used up.
 * An idle one costs next to nothing.
 */
const UV_THREADPOOL_SIZE = '32';
const SMALL_CODE = '--optimize-for-size';
const NODE_FLAGS = '--max-semi-space-size=1 --no-node-snapshot';
/** Counts the starts of this process in the environment, so that they end. */
const STARTS = 'VIRTKEEP_LEAN_STARTS';
const MAX_STARTS = 2;
/** Commands that end soon, and what tells of the program. */
const SHORT = ['enroll', '--version', '--help', '-h'];
/** Code of the worker threads, beside what the main thread loads. */
const WORKERS = [
  new URL('./worker/call.worker.ts', import.meta.resolve('@virtkeep/node-libvirt')),
  new URL('./worker/event.worker.ts', import.meta.resolve('@virtkeep/node-libvirt')),
  new URL('./archive/threads/block.worker.ts', import.meta.url),
  new URL('./archive/threads/sequencer.worker.ts', import.meta.url),
  new URL('./archive/read/stream.worker.ts', import.meta.url),
];

/**
 * Starts the same program anew in this process (its pid, its descriptors) with the settings of a small one. Returns when
 * it has them, and where the system cannot do it.
 * @param args of the command line; one that ends soon goes on as it is, with the code that is kept
 */
export function startLean(args: readonly string[]): void {
  if (args.some(arg => SHORT.includes(arg))) useCodeCache();
  else if (starts() === 0) startAnew();
}

/**
 * For tests, which start hundreds: an environment with all this but the flags of Node, which take half of a start. It counts as started
 * anew already.
 */
export const startedQuickly = (): Record<string, string> => settingsOf(MAX_STARTS);

/**
 * Keeps the code that was just loaded. When it had to be stripped (the first start of a version), the program starts
 * once more to be rid of the stripper's memory.
 */
export async function shedStripper(): Promise<void> {
  if (starts() === 0 || starts() >= MAX_STARTS) return;
  const countBefore = cachedFiles();
  keepCodeCache();
  if (cachedFiles() === countBefore) return;
  // They fail outside of a thread, but their code is in the cache then.
  await Promise.allSettled(WORKERS.map(url => import(url.href)));
  keepCodeCache();
  startAnew();
}

const starts = (): number => Number(process.env[STARTS] ?? 0);

/** @param count of starts */
const settingsOf = (count: number): Record<string, string> => ({
  MALLOC_ARENA_MAX,
  UV_THREADPOOL_SIZE,
  NODE_COMPILE_CACHE: codeCacheDirectory(),
  [STARTS]: String(count),
});

function startAnew(): void {
  const { NODE_OPTIONS = '' } = process.env;
  const env = {
    ...process.env,
    ...settingsOf(starts() + 1),
    NODE_OPTIONS: starts() === 0 ? `${NODE_OPTIONS} ${NODE_FLAGS}`.trim() : NODE_OPTIONS,
  };
  // not one that Node takes from the environment
  replaceProcess([SMALL_CODE], env);
}

/** Entries of the cache; 0 when there is none. */
function cachedFiles(): number {
  const directory = getCompileCacheDir();
  if (directory === undefined) return 0;
  try {
    return readdirSync(directory).length;
  } catch {
    return 0;
  }
}
