/** All benchmarks, one after the other, each in a process of its own, of the programs as they are shipped; fails when a target is missed. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ROOT } from '../lab/paths.ts';

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

execFileSync(process.execPath, [join(ROOT, 'packaging', 'bundle.ts')], { stdio: 'inherit' });
const env = { ...process.env, VIRTKEEP_BUNDLE: join(ROOT, 'bundle') };
for (const name of BENCHMARKS) {
  const child = spawn(process.execPath, [join(import.meta.dirname, name), ...process.argv.slice(2)], {
    stdio: 'inherit',
    env,
  });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) process.exitCode = 1;
}
