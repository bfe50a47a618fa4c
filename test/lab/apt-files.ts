import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { CACHE } from './paths.ts';
import { run, succeeds } from './run.ts';

const APT = ['-q', '-o', 'APT::Sandbox::User=root'];

/**
 * Unpacks a Debian package under `.cache/debs/<name>` without installing it: a kernel package installed on the host
 * would rebuild the host's initramfs. @returns the directory
 */
export async function unpackedPackage(name: string): Promise<string> {
  const target = join(CACHE, 'debs', name);
  if (existsSync(target)) return target;
  const work = join(CACHE, 'debs', `.${name}.${process.pid}`);
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work, { recursive: true });
  if (!(await succeeds(['apt-get', ...APT, 'download', name], { cwd: work, timeoutMs: 600_000 }))) {
    await run(['apt-get', ...APT, 'update'], { timeoutMs: 600_000 });
    await run(['apt-get', ...APT, 'download', name], { cwd: work, timeoutMs: 600_000 });
  }
  const file = readdirSync(work).find(entry => entry.endsWith('.deb'));
  if (!file) throw new Error(`apt-get download ${name} brought no package`);
  await run(['dpkg', '-x', join(work, file), join(work, 'root')]);
  try {
    renameSync(join(work, 'root'), target);
  } catch (error) {
    // another process was faster
    if (!existsSync(target)) throw error;
  }
  rmSync(work, { recursive: true, force: true });
  return target;
}

/** The versioned package that Debian's newest cloud kernel meta package stands for. */
export async function cloudKernelPackage(): Promise<string> {
  const unpacked = readdirSync(join(CACHE, 'debs'), { withFileTypes: true })
    .filter(entry => entry.isDirectory() && /^linux-image-.*cloud/.test(entry.name))
    .map(entry => entry.name)
    .sort()
    .at(-1);
  if (unpacked) return unpacked;
  const query = () => run(['apt-cache', 'depends', 'linux-image-cloud-amd64']);
  const { stdout } = await query().catch(async () => {
    await run(['apt-get', ...APT, 'update'], { timeoutMs: 600_000 });
    return query();
  });
  const name = stdout.match(/Depends: (linux-image-\S+)/)?.[1];
  if (!name) throw new Error('apt knows no linux-image-cloud-amd64; is this Debian 12 or 13?');
  return name;
}
