import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { codeCacheDirectory } from '@virtkeep/shared/code-cache';

/** Helpers of all benchmarks: alternating rounds, medians, ratios against targets. */

/** Middle value; the mean of the two middle ones for an even count. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((first, second) => first - second);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** One thing to be measured; `run` returns its own time in ms when it can tell better than a clock around it. */
export interface BenchCase {
  name: string;
  /** In the middle round only: what is not judged by its median. */
  once?: boolean;
  /** Not timed: removes what the last round left. */
  prepare?: () => Promise<void> | void;
  run: () => Promise<number | undefined>;
}

/**
 * Runs the cases one after another, `rounds` times over, so that a machine that slows down slows all of them.
 * @returns per case the times in ms, one for each of its rounds
 */
export async function alternate(rounds: number, cases: readonly BenchCase[]): Promise<Map<string, number[]>> {
  const times = new Map<string, number[]>(cases.map(({ name }) => [name, []]));
  const middle = rounds >> 1;
  for (let round = 0; round < rounds; round++)
    for (const { name, once = false, prepare, run } of cases) {
      if (once && round !== middle) continue;
      await prepare?.();
      const start = performance.now();
      const own = await run();
      times.get(name)!.push(own ?? performance.now() - start);
      process.stderr.write(`\r${`round ${round + 1}/${rounds} ${name}`.padEnd(70)}`);
    }
  process.stderr.write(`\r${' '.repeat(70)}\r`);
  return times;
}

/** A row of the result: `value` is to be at most (or at least) `target`. */
export interface BenchRow {
  name: string;
  value: number;
  unit: string;
  target?: number;
  /** Default 'at most'. */
  sense?: 'at most' | 'at least';
  /** What the value was computed from. */
  note?: string;
}

export const passes = ({ value, target, sense }: BenchRow): boolean =>
  target === undefined || (sense === 'at least' ? value >= target : value <= target);

/** Prints the rows and returns whether all targets were met. */
export function printTable(title: string, rows: readonly BenchRow[]): boolean {
  console.log(`\n${title}`);
  const width = Math.max(...rows.map(({ name }) => name.length));
  for (const row of rows) {
    const { name, value, unit, target, sense = 'at most', note = '' } = row;
    const shown = `${value.toFixed(value < 10 ? 3 : 1)} ${unit}`.padStart(14);
    const wanted = target === undefined ? '' : `${sense} ${target}`;
    const verdict = target === undefined ? '' : passes(row) ? 'pass' : 'FAIL';
    console.log(
      `${name.padEnd(width)} ${shown}  ${wanted.padEnd(14)} ${verdict.padEnd(5)} ${note}`.trimEnd(),
    );
  }
  return rows.every(passes);
}

/** Runs a program to its end. @throws Error when it fails */
export async function command(program: string, args: readonly string[], cwd?: string): Promise<void> {
  const child = spawn(program, args, {
    stdio: ['ignore', 'ignore', 'pipe'],
    ...(cwd === undefined ? {} : { cwd }),
  });
  let errors = '';
  child.stderr.on('data', (bytes: Buffer) => {
    errors = (errors + bytes.toString()).slice(0, 2000);
  });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`${program} ${args.join(' ')} failed (${code}): ${errors}`);
}

/** What a measured Node process reports. */
export interface Measured {
  elapsedMs: number;
  peakRssBytes: number;
  [key: string]: unknown;
}

/** Runs a TypeScript file in a process of its own; it prints one JSON line ({@link Measured}) at its end. */
export async function measuredNode(file: string, args: readonly string[]): Promise<Measured> {
  const child = spawn(process.execPath, [file, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, NODE_COMPILE_CACHE: codeCacheDirectory() },
  });
  let output = '';
  child.stdout.on('data', (bytes: Buffer) => {
    output += bytes.toString();
  });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`${file} ${args.join(' ')} failed (${code})`);
  return JSON.parse(output.trim().split('\n').at(-1)!) as Measured;
}

/** Highest memory this process had resident, in bytes; getrusage would count that of the process that started it. */
export const peakRssBytes = (): number =>
  Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))![1]) * 1024;

/** Highest memory that a process had resident, MiB. */
export const peakMiB = (pid: number): number =>
  Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024;

/** What the kernel counts process times in, a second. */
const TICKS = 100;

/** Processor time of a process so far, ms. */
export function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
  return ((Number(fields[11]) + Number(fields[12])) * 1000) / TICKS;
}

const QUIET_MS = 300;
const MAX_WAIT_MS = 10_000;

/**
 * Waits until no disk moves any more, at most ten seconds. A file system mounted with `discard` gives removed blocks back
 * in the background after the sync: the next case would pay for the one before.
 */
export async function quietDisks(): Promise<void> {
  const deadline = performance.now() + MAX_WAIT_MS;
  for (let before = ''; performance.now() < deadline; await sleep(QUIET_MS)) {
    const now = readFileSync('/proc/diskstats', 'utf8');
    if (now === before) return;
    before = now;
  }
}

/** Drops a file's pages from the page cache, so that every case reads its source from the disk. */
export async function dropCached(path: string): Promise<void> {
  await command('dd', [`if=${path}`, 'iflag=nocache', 'count=0', 'status=none']);
}

export interface BenchOptions {
  quick: boolean;
  /** All of what is measured, however long that takes. */
  full: boolean;
  rounds: number;
  /** Leave the sources in the page cache. */
  warm: boolean;
  /** Parts to run; all when empty. */
  only: string[];
  /** Size of the data set in MiB, when another than the usual is wanted. */
  sizeMiB: number | undefined;
  /** How large a data set is: its usual size, or a part of that on a slow disk, so that all benchmarks take as long there. */
  dataMiB: (sizes: DataSizes) => number;
}

export interface DataSizes {
  usualMiB: number;
  quickMiB: number;
  /** Less says nothing, however slow the disk is. Default: twice `quickMiB`. */
  leastMiB?: number;
}

/** Variable with the part of the usual sizes that the disk of this machine is fast enough for, from 0 to 1; all when nobody measured it. */
export const SHARE_VARIABLE = 'VIRTKEEP_BENCH_SHARE';

/**
 * Options every benchmark has.
 * @param usualRounds fewer where each takes long, and what it is judged by is measured in each, too
 */
export function benchOptions(usualRounds = 3): BenchOptions {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean' },
      full: { type: 'boolean' },
      rounds: { type: 'string' },
      warm: { type: 'boolean' },
      only: { type: 'string', multiple: true },
      size: { type: 'string' },
    },
  });
  const { quick = false, full = false } = values;
  const rounds = Number(values.rounds ?? usualRounds);
  const share = Number(process.env[SHARE_VARIABLE] ?? 1);
  return {
    quick,
    full,
    rounds,
    warm: values.warm ?? false,
    only: values.only ?? [],
    sizeMiB: values.size === undefined ? undefined : Number(values.size),
    dataMiB: ({ usualMiB, quickMiB, leastMiB = 2 * quickMiB }) =>
      quick ? quickMiB : Math.max(leastMiB, Math.round(usualMiB * share)),
  };
}
