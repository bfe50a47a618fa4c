/**
 * ZFS without a kernel module: zfs-fuse inside a lab node, with pools on files, datasets, snapshots and clones, but
 * without volumes. The Debian packages are unpacked, not installed: zfs-fuse would start a daemon of the machine's own and
 * push the tools of a real ZFS aside.
 */
import type { ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { unpackedPackage } from './apt-files.ts';
import type { LabNode } from './node.ts';
import { type RunResult, run, waitFor } from './run.ts';

/** Directories of the machine of which the daemon gets its own; its socket is in the first one. */
const PRIVATE = { run: '/run/zfs', lock: '/run/lock/zfs', etc: '/etc/zfs', lib: '/var/lib/zfs' };
const POOL_MIB = 512;

/** Why zfs-fuse cannot run on this machine, or null. */
export async function zfsFuseMissing(): Promise<string | null> {
  if (!existsSync('/dev/fuse')) return 'there is no /dev/fuse';
  return programs().then(
    () => null,
    error => `zfs-fuse cannot be had: ${(error as Error).message}`,
  );
}

interface Programs {
  /** Directory of zfs, zpool and zfs-fuse. */
  directory: string;
  /** Directories of the libraries that this machine lacks. */
  libraries: string[];
}

async function programs(): Promise<Programs> {
  const directory = sbinOf(await unpackedPackage('zfs-fuse'));
  const { stdout } = await run(['ldd', join(directory, 'zfs-fuse')]);
  const libraries: string[] = [];
  for (const [, name, version] of stdout.matchAll(/lib(\w+)\.so\.(\d+) => not found/g)) {
    const root = await unpackedPackage(`lib${name}${version}`).catch(() =>
      unpackedPackage(`lib${name}${version}t64`),
    );
    libraries.push(directoryWith(root, `lib${name}.so.${version}`));
  }
  return { directory, libraries };
}

function sbinOf(root: string): string {
  return [join(root, 'usr', 'sbin'), join(root, 'sbin')].find(path => existsSync(join(path, 'zfs-fuse')))!;
}

function directoryWith(root: string, file: string): string {
  const found = readdirSync(root, { recursive: true, encoding: 'utf8' }).find(path => path.endsWith(file));
  if (!found) throw new Error(`${root} holds no ${file}`);
  return join(root, found, '..');
}

/** zfs-fuse of one node. It ends with the node. */
export class ZfsFuse {
  readonly node: LabNode;
  /** Directory with `zfs` and `zpool`, for a PATH. */
  readonly bin: string;
  readonly #dir: string;
  readonly #daemon: ChildProcess;

  constructor(node: LabNode, dir: string, daemon: ChildProcess) {
    this.node = node;
    this.#dir = dir;
    this.bin = join(dir, 'bin');
    this.#daemon = daemon;
  }

  get pid(): number {
    return this.#daemon.pid!;
  }

  /** The table of mounts as the node sees it. */
  mountInfo(): string {
    return readFileSync(`/proc/${this.pid}/mountinfo`, 'utf8');
  }

  /** Runs `zfs` in the node. */
  zfs(...args: string[]): Promise<RunResult> {
    return this.node.runInside([join(this.bin, 'zfs'), ...args]);
  }

  /** Makes a pool on a file, mounted at a directory of that name. @returns where it is mounted */
  async createPool(name: string): Promise<string> {
    const [image, at] = [join(this.#dir, `${name}.img`), join(this.#dir, name)];
    await run(['truncate', '-s', `${POOL_MIB}M`, image]);
    await this.node.runInside([join(this.bin, 'zpool'), 'create', '-m', at, name, image]);
    return at;
  }

  /** Destroys a dataset without the product. */
  async destroy(name: string): Promise<void> {
    await untilFree(name, () => this.zfs('destroy', name));
  }

  /** Holds the next `zfs <command>`, whoever runs it, while `work` is done; `work` begins when it is held. */
  async whileHeld(command: string, begin: () => Promise<unknown>, work: () => Promise<void>): Promise<void> {
    const [hold, held] = ['hold', 'held'].map(word => join(this.#dir, `${word}-${command}`));
    writeFileSync(hold!, '');
    try {
      await begin();
      await waitFor(`zfs ${command}`, () => existsSync(held!), 120_000, 20);
      await work();
    } finally {
      rmSync(hold!, { force: true });
      rmSync(held!, { force: true });
    }
  }

  async destroyPool(name: string): Promise<void> {
    await untilFree(name, () => this.node.runInside([join(this.bin, 'zpool'), 'destroy', '-f', name]));
  }
}

/** zfs-fuse unmounts in the background, so what is destroyed may be busy at first. */
async function untilFree(name: string, destroy: () => Promise<unknown>): Promise<void> {
  const destroyed = () =>
    destroy().then(
      () => true,
      error => {
        if (/busy/.test(String(error))) return false;
        throw error;
      },
    );
  await waitFor(`the end of ${name}`, destroyed, 120_000);
}

/** Starts zfs-fuse in a node (half a second). @throws Error where it cannot run: ask `zfsFuseMissing` before */
export async function startZfsFuse(node: LabNode): Promise<ZfsFuse> {
  const dir = join(node.dir, 'zfs');
  const { directory, libraries } = await programs();
  mkdirSync(join(dir, 'bin'), { recursive: true });
  for (const [own, host] of Object.entries(PRIVATE)) {
    mkdirSync(join(dir, own), { recursive: true });
    mkdirSync(host, { recursive: true });
    await node.runInside(['mount', '--bind', join(dir, own), host]);
  }
  for (const name of ['zfs', 'zpool', 'zfs-fuse']) {
    const path = `LD_LIBRARY_PATH='${libraries.join(':')}'`;
    const script = `#!/bin/sh\n${holdScript(dir)}${path} exec '${join(directory, name)}' "$@"\n`;
    writeFileSync(join(dir, 'bin', name), script, { mode: 0o755 });
  }
  const daemon = node.spawnInside(
    [
      join(dir, 'bin', 'zfs-fuse'),
      '--no-daemon',
      '--no-kstat-mount',
      '--max-arc-size',
      '32',
      '-p',
      join(dir, 'pid'),
    ],
    { detached: true },
  );
  const fuse = new ZfsFuse(node, dir, daemon);
  await waitFor('zfs-fuse', () => answers(fuse), 120_000);
  return fuse;
}

/** Holds `zfs <command>` while the file `hold-<command>` exists, and says so in `held-<command>`. */
function holdScript(dir: string): string {
  return `if [ -e '${dir}'/hold-"$1" ]; then : > '${dir}'/held-"$1"; while [ -e '${dir}'/hold-"$1" ]; do sleep 0.1; done; fi\n`;
}

function answers(fuse: ZfsFuse): Promise<boolean> {
  return fuse.zfs('list').then(
    () => true,
    () => false,
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const missing = await zfsFuseMissing();
  process.stdout.write(`setup: ${missing ? `${missing}; tests on zfs will be skipped` : 'zfs-fuse ready'}\n`);
}
