/**
 * The tiny guest: a kernel with an initramfs of busybox and qemu-ga that answers guest-ping 2–4 s after its start under
 * emulation. It runs from memory; ext4 data disks are mounted at /mnt/<device>. Run as a program it builds the guest.
 */
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { unpackedPackage } from './apt-files.ts';
import { type CpioEntry, cpioArchive, DIRECTORY, EXECUTABLE, PLAIN, SYMLINK } from './cpio.ts';
import { cloudKernel, type Kernel, moduleBytes, moduleClosure, plainKernel } from './kernel.ts';
import { CACHE } from './paths.ts';
import { run } from './run.ts';

export interface BootFiles {
  /** As QEMU starts it soonest. */
  kernel: string;
  /** As UEFI firmware starts it. */
  uefiKernel: string;
  initrd: string;
}

const OVERLAY = join(dirname(fileURLToPath(import.meta.url)), 'guest-root');
const MODULES = [
  'virtio_pci', 'virtio_blk', 'virtio_console', 'virtio_net', 'virtio_scsi', 'sd_mod', 'sr_mod', 'isofs',
  'virtio_balloon', 'virtio_rng', 'button', 'evdev', 'ahci', 'vmw_pvscsi',
]; // biome-ignore format: a list of words
const DIRECTORIES = [
  'bin', 'usr', 'usr/bin', 'etc', 'proc', 'sys', 'dev', 'run', 'tmp', 'mnt', 'root', 'newroot', 'var', 'var/run',
  'var/log', 'etc/qemu', 'lib', 'lib64', 'lib/modules',
]; // biome-ignore format: a list of words

let built: Promise<BootFiles> | undefined;

/** Kernel and initramfs of the tiny guest, built in the cache when its parts have changed (a second or two). */
export function tinyGuest(): Promise<BootFiles> {
  built ??= build();
  return built;
}

async function build(): Promise<BootFiles> {
  const kernel = await cloudKernel();
  const busybox = program(await unpackedPackage('busybox-static'), 'bin/busybox');
  const agent = program(await unpackedPackage('qemu-guest-agent'), 'sbin/qemu-ga');
  const key = contentKey(kernel, [busybox, agent]);
  const initrd = join(CACHE, 'guest', `tiny-${key}.cpio`);
  if (!existsSync(initrd)) {
    mkdirSync(dirname(initrd), { recursive: true });
    const archive = cpioArchive(await entries(kernel, busybox, agent));
    writeFileSync(`${initrd}.${process.pid}`, archive);
    renameSync(`${initrd}.${process.pid}`, initrd);
  }
  return { kernel: plainKernel(kernel), uefiKernel: kernel.image, initrd };
}

/** A program of an unpacked package; Debian 13 moved all of /bin and /sbin below /usr. */
function program(root: string, path: string): string {
  const found = [join(root, 'usr', path), join(root, path)].find(file => existsSync(file));
  if (!found) throw new Error(`no ${path} in ${root}`);
  return found;
}

function contentKey(kernel: Kernel, files: string[]): string {
  const hash = createHash('sha256')
    .update(kernel.version)
    .update(readFileSync(fileURLToPath(import.meta.url)));
  for (const file of [...files, ...overlayFiles().map(path => join(OVERLAY, path))])
    hash.update(readFileSync(file));
  return hash.digest('hex').slice(0, 16);
}

function overlayFiles(): string[] {
  return readdirSync(OVERLAY, { recursive: true, encoding: 'utf8' }).filter(path =>
    statSync(join(OVERLAY, path)).isFile(),
  );
}

async function entries(kernel: Kernel, busybox: string, agent: string): Promise<CpioEntry[]> {
  const tree = new Map<string, CpioEntry>();
  const put = (path: string, mode: number, data: Buffer) => {
    for (let dir = dirname(path); dir !== '.' && !tree.has(dir); dir = dirname(dir)) {
      tree.set(dir, { path: dir, mode: DIRECTORY, data: Buffer.alloc(0) });
    }
    tree.set(path, { path, mode, data });
  };
  for (const path of DIRECTORIES) put(path, DIRECTORY, Buffer.alloc(0));
  put('sbin', SYMLINK, Buffer.from('bin'));
  put('usr/sbin', SYMLINK, Buffer.from('../bin'));
  put('bin/busybox', EXECUTABLE, readFileSync(busybox));
  const applets = (await run([busybox, '--list'])).stdout.trim().split('\n');
  for (const applet of applets) {
    if (applet !== 'busybox') put(`bin/${applet}`, SYMLINK, Buffer.from('busybox'));
  }
  put('bin/qemu-ga', EXECUTABLE, readFileSync(agent));
  for (const library of await sharedLibraries(agent))
    put(library.slice(1), EXECUTABLE, readFileSync(library));
  for (const path of overlayFiles()) {
    put(
      path,
      path.startsWith('etc/') && !path.includes('PWRF') && !path.endsWith('.script') ? PLAIN : EXECUTABLE,
      readFileSync(join(OVERLAY, path)),
    );
  }
  const modules = await moduleClosure(kernel, MODULES);
  for (const file of modules) put(`lib/modules/${plainName(file)}`, PLAIN, moduleBytes(file));
  put('lib/modules/order', PLAIN, Buffer.from(`${modules.map(plainName).join('\n')}\n`));
  return parentsFirst(tree);
}

/** Name of a module file without its compression. */
function plainName(file: string): string {
  return basename(file).replace(/\.(xz|zst)$/, '');
}

/** The kernel's loader makes no missing directories, so these come before what lies in them. */
function parentsFirst(tree: Map<string, CpioEntry>): CpioEntry[] {
  return [...tree.values()].sort(
    (a, b) => Number(b.mode === DIRECTORY) - Number(a.mode === DIRECTORY) || depth(a) - depth(b),
  );
}

const depth = (entry: CpioEntry): number => entry.path.split('/').length;

/** Paths of the libraries a program needs, as the host's loader finds them. */
async function sharedLibraries(program: string): Promise<string[]> {
  const { stdout } = await run(['ldd', program]);
  const missing = stdout.match(/(\S+) => not found/);
  if (missing) throw new Error(`${program} needs ${missing[1]}, which this machine does not have`);
  return [...stdout.matchAll(/(\/[^\s)]+)/g)].map(match => match[1]!);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { initrd } = await tinyGuest();
  process.stdout.write(`setup: tiny guest ready (${initrd.slice(CACHE.length + 1)})\n`);
}
