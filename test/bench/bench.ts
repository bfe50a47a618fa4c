/**
 * All benchmarks, one after the other, each in a process of its own, of the programs as they are shipped; fails when a target is missed.
 * Together they took 13 minutes on two cores and a disk of 750 MB/s. How much data they move depends on the disk, so that a slow one does not
 * take hours: `--full` moves all of it, and lets archives grow older.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, WORLDS } from '../lab/paths.ts';
import { SHARE_VARIABLE } from './lib.ts';
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
const FAST = 600;
/** Of a smaller part nothing can be told: what does not grow with the data weighs too much in it. */
const SMALLEST = 0.5;
/** Who asks for sizes has them. */
const SIZED = ['--full', '--quick', '--size'];

const args = process.argv.slice(2);
const began = performance.now();
execFileSync(process.execPath, [join(ROOT, 'packaging', 'bundle.ts')], { stdio: 'inherit' });
const env = {
  ...process.env,
  VIRTKEEP_BUNDLE: join(ROOT, 'bundle'),
  [SHARE_VARIABLE]: String(await share()),
};
for (const name of BENCHMARKS) {
  const start = performance.now();
  const child = spawn(process.execPath, [join(import.meta.dirname, name), ...args], {
    stdio: 'inherit',
    env,
  });
  const [code] = (await once(child, 'close')) as [number | null];
  console.log(`${name}: ${seconds(start)} s${code === 0 ? '' : ', failed'}`);
  if (code !== 0) process.exitCode = 1;
}
console.log(`all benchmarks: ${seconds(began)} s`);

/** The part of the usual sizes for this disk, from SMALLEST to 1. */
async function share(): Promise<number> {
  if (args.some(argument => SIZED.some(option => argument.startsWith(option)))) return 1;
  const own = join(ROOT, '.cache', 'bench');
  mkdirSync(own, { recursive: true });
  const speed = Math.min(await diskSpeed(own), await diskSpeed(WORLDS));
  const part = Math.min(1, Math.max(SMALLEST, speed / FAST));
  const shown = `${speed.toFixed(0)} MB/s each way at once`;
  console.log(`The disk does ${shown}: data sets have ${(part * 100).toFixed(0)} % of their usual size.`);
  return part;
}

function seconds(from: number): string {
  return ((performance.now() - from) / 1000).toFixed(0);
}
