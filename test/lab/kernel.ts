import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { cloudKernelPackage, unpackedPackage } from './apt-files.ts';
import { CACHE } from './paths.ts';
import { run } from './run.ts';

export interface Kernel {
  version: string;
  image: string;
  /** Module files by canonical name (with underscores). */
  modules: Map<string, string>;
}

/** Debian's cloud kernel, unpacked in the cache. ext4, ACPI and PCI hot-plug are built into it. */
export async function cloudKernel(): Promise<Kernel> {
  mkdirSync(join(CACHE, 'debs'), { recursive: true });
  const root = await unpackedPackage(await cloudKernelPackage());
  const image = readdirSync(join(root, 'boot')).find(name => name.startsWith('vmlinuz-'));
  if (!image) throw new Error(`no kernel image in ${root}/boot`);
  const modules = new Map<string, string>();
  // Debian 13 ships modules under /usr/lib and xz-compressed
  for (const path of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
    const name = basename(path).match(/^(.+)\.ko(\.xz|\.zst)?$/)?.[1];
    if (name) modules.set(name.replaceAll('-', '_'), join(root, path));
  }
  return { version: image.slice('vmlinuz-'.length), image: join(root, 'boot', image), modules };
}

/** Where a kernel image says what it carries: sectors of its real mode part, and its packed part's place and length. */
const SETUP_SECTORS_AT = 0x1f1;
const PAYLOAD_OFFSET_AT = 0x248;
const PAYLOAD_LENGTH_AT = 0x24c;
const SECTOR_BYTES = 512;
/** The length of what was packed stands behind it. */
const PAYLOAD_TRAILER_BYTES = 4;

/** Type and owner of the ELF note that tells where such a start begins. */
const PVH_NOTE = Buffer.from([18, 0, 0, 0, ...Buffer.from('Xen\0')]);

/** Programs that unpack a kernel, by the first bytes of what they unpack. */
const UNPACKERS: readonly [number, string][] = [
  [0x184c2102, 'lz4'],
  [0xfd2fb528, 'zstd'],
];

/**
 * The kernel without its packing, as QEMU starts it itself (PVH): an emulated processor takes a fifth of a boot to unpack it.
 * UEFI firmware starts none such. The packed one when it is packed otherwise, or made without that way to start.
 */
export function plainKernel({ version, image }: Kernel): string {
  const path = join(CACHE, 'guest', `vmlinux-${version}`);
  if (existsSync(path)) return path;
  const bytes = readFileSync(image);
  const start = (bytes[SETUP_SECTORS_AT]! + 1) * SECTOR_BYTES + bytes.readUInt32LE(PAYLOAD_OFFSET_AT);
  const end = start + bytes.readUInt32LE(PAYLOAD_LENGTH_AT) - PAYLOAD_TRAILER_BYTES;
  const packed = bytes.subarray(start, end);
  const unpacker = UNPACKERS.find(([magic]) => magic === packed.readUInt32LE(0))?.[1];
  if (!unpacker) return image;
  const plain = execFileSync(unpacker, ['-d', '-c'], { input: packed, maxBuffer: 256 * 1024 * 1024 });
  if (!plain.includes(PVH_NOTE)) return image;
  mkdirSync(join(CACHE, 'guest'), { recursive: true });
  writeFileSync(`${path}.${process.pid}`, plain);
  renameSync(`${path}.${process.pid}`, path);
  return path;
}

/** Files of the wanted modules and what they depend on, in loading order; a built-in one is left out. */
export async function moduleClosure(kernel: Kernel, wanted: readonly string[]): Promise<string[]> {
  const order: string[] = [];
  const visit = async (name: string): Promise<void> => {
    const file = kernel.modules.get(name.replaceAll('-', '_'));
    if (!file || order.includes(file)) return;
    const { stdout } = await run(['modinfo', '-F', 'depends', file]);
    for (const dependency of stdout.trim().split(',').filter(Boolean)) await visit(dependency);
    if (!order.includes(file)) order.push(file);
  };
  for (const name of wanted) await visit(name);
  return order;
}

/** Content of a module file, unpacked: busybox insmod takes plain files only. */
export function moduleBytes(file: string): Buffer {
  const unpacker = file.endsWith('.xz') ? 'xz' : file.endsWith('.zst') ? 'zstd' : undefined;
  if (!unpacker) return readFileSync(file);
  return execFileSync(unpacker, ['-d', '-c', file], { maxBuffer: 64 * 1024 * 1024 });
}
