import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { run } from './run.ts';

export interface DataDiskOptions {
  /** Virtual size; default 64 MiB. */
  sizeMiB?: number;
  format?: 'qcow2' | 'raw';
  /** Files of the file system: path inside it to content. */
  files?: Record<string, string | Buffer>;
  /** Label of the file system. */
  label?: string;
  /** Backing qcow2 file; then `files` must be absent, the disk is an overlay. */
  backing?: string;
}

/** Makes a disk with an ext4 file system (no loop mount: mkfs.ext4 fills it). @returns its path */
export async function makeDataDisk(path: string, options: DataDiskOptions = {}): Promise<string> {
  const format = options.format ?? 'qcow2';
  mkdirSync(dirname(path), { recursive: true });
  if (options.backing) {
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', options.backing, '-F', 'qcow2', path]);
    return path;
  }
  const work = mkdtempSync(join(tmpdir(), 'vk-disk-'));
  const raw = format === 'raw' ? path : `${path}.raw`;
  try {
    for (const [name, content] of Object.entries(options.files ?? {})) {
      mkdirSync(dirname(join(work, name)), { recursive: true });
      writeFileSync(join(work, name), content);
    }
    await makeExt4(raw, work, options.sizeMiB ?? 64, options.label);
    if (format === 'qcow2') await run(['qemu-img', 'convert', '-f', 'raw', '-O', 'qcow2', raw, path]);
  } finally {
    rmSync(work, { recursive: true, force: true });
    if (raw !== path) rmSync(raw, { force: true });
  }
  return path;
}

/** Makes a raw ext4 image filled with a directory's content, owners kept, without a mount. */
export async function makeExt4(
  image: string,
  content: string,
  sizeMiB: number,
  label?: string,
): Promise<void> {
  const labelled = label ? ['-L', label] : [];
  const extended = ['-E', 'lazy_itable_init=0,lazy_journal_init=0'];
  await run(['mkfs.ext4', '-q', '-F', ...labelled, ...extended, '-d', content, image, `${sizeMiB}M`]);
}

/** Disks have whole ones. */
const SECTOR = 512;

/** Makes a disk without file system: `dataBytes` random bytes at its start, the rest a hole. Sizes need not be round. */
export async function makePlainDisk(
  path: string,
  options: { sizeBytes: number; dataBytes?: number; format?: 'qcow2' | 'raw' },
): Promise<string> {
  mkdirSync(dirname(path), { recursive: true });
  const { sizeBytes, dataBytes = 0, format = 'qcow2' } = options;
  if (format === 'qcow2' && dataBytes === 0) {
    await run(['qemu-img', 'create', '-q', '-f', format, path, String(sizeBytes)]);
    return path;
  }
  const raw = format === 'raw' ? path : `${path}.data`;
  writeFileSync(raw, randomBytes(dataBytes));
  truncateSync(raw, Math.ceil(sizeBytes / SECTOR) * SECTOR);
  if (raw === path) return path;
  await run(['qemu-img', 'convert', '-f', 'raw', '-O', format, raw, path]);
  rmSync(raw);
  return path;
}

/**
 * Makes a file of 1 MiB that is a CD-ROM by its content, and by its header a qcow2 image on top of a file of the host.
 * @returns its path
 */
export function makeTwoFaced(path: string, backing: string): string {
  rmSync(path, { force: true });
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', '-u', '-b', backing, '-F', 'raw', path, '1M']);
  const file = openSync(path, 'r+');
  // where ISO 9660 says what it is; qcow2 has nothing there
  writeSync(file, 'CD001', 32_769);
  closeSync(file);
  truncateSync(path, 2 ** 20);
  return path;
}
