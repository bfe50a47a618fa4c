/**
 * All benchmarks, one after the other, each in a process of its own, of the programs as they are shipped; fails when a target is missed.
 * How much data they move depends on the disk, so that they take a quarter of an hour on any machine: `--full` moves all of it.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../lab/paths.ts';
import { SHARE } from './lib.ts';
import { diskSpeed } from './limit.ts';

const BENCHMARKS = [
  'archive.ts',
  'append.ts',
  'long.ts',
  'backup.ts',
  'guest-feels.ts',
  'many.ts',
  'one-node.ts',
  'import.ts',
  'increments.ts',
  'lending.ts',
  'guest-info.ts',
  'metrics.ts',
  'schedules.ts',
  'web.ts',
];
/** A disk that reads and writes so much at once, each way, has the usual sizes, MB/s. */
const FAST = 1000;
/** Less would be over before anything of it can be told apart. */
const SMALLEST = 0.2;

const args = process.argv.slice(2);
const began = performance.now();
execFileSync(process.execPath, [join(ROOT, 'packaging', 'bundle.ts')], { stdio: 'inherit' });
const env = { ...process.env, VIRTKEEP_BUNDLE: join(ROOT, 'bundle'), [SHARE]: String(await share()) };
for (const name of BENCHMARKS) {
  const start = performance.now();
  const child = spawn(process.execPath, [join(import.meta.dirname, name), ...args.filter(isTheirs)], {
    stdio: 'inherit',
    env,
  });
  const [code] = (await once(child, 'close')) as [number | null];
  console.log(`${name}: ${seconds(start)} s${code === 0 ? '' : ', a target was missed'}`);
  if (code !== 0) process.exitCode = 1;
}
console.log(`all benchmarks: ${seconds(began)} s`);

/** The part of the usual sizes for this disk, from SMALLEST to 1. */
async function share(): Promise<number> {
  if (!args.every(isTheirs)) return 1;
  const directory = join(ROOT, '.cache', 'bench');
  mkdirSync(directory, { recursive: true });
  const speed = await diskSpeed(directory);
  const part = Math.min(1, Math.max(SMALLEST, speed / FAST));
  const shown = `${speed.toFixed(0)} MB/s each way at once`;
  console.log(`The disk does ${shown}: data sets have ${(part * 100).toFixed(0)} % of their usual size.`);
  return part;
}

function isTheirs(argument: string): boolean {
  return argument !== '--full';
}

function seconds(from: number): string {
  return ((performance.now() - from) / 1000).toFixed(0);
}
