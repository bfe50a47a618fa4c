import type { Dirent } from 'node:fs';
import { join } from 'node:path';
import { opendir } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, reasonOf } from '@virtkeep/shared/errors';
import { notAFile, specialKindOf } from '@virtkeep/shared/foreign-file';
import { isVirtnbdMain, isVirtnbdPart } from '@virtkeep/shared/virtnbd-names';

export interface FileKind {
  type: 'tar' | 'xml' | 'OVA' | 'OVF' | 'vma' | 'virtnbdbackup' | 'disk';
  compressed: boolean;
}

/** An OVF stands in a directory of its own beside its disks; deeper ones are somebody else's. */
const MAX_DEPTH = 3;
/** How much of a directory is looked at, whoever filled it. */
const LIMITS: ListLimits = { files: 100_000, names: 500_000 };
/** More are not named: whoever makes thousands of them is to be found by the first. */
const MAX_SKIPPED = 100;

/** Endings of disk images that stand alone. */
const DISK_IMAGE = /\.(qcow2|vmdk|vhdx|vhd|vdi|img|raw)$/;

export interface ListLimits {
  /** Backup files that are listed. */
  files: number;
  /** Names that are looked at for them. */
  names: number;
}

/** Something under a backup's name that is not read, and why. */
export interface Skipped {
  filename: string;
  reason: string;
}

export interface BackupPaths {
  /** Relative to the directory, sorted. */
  names: string[];
  skipped: Skipped[];
  /** There is more than was looked at. */
  isCut: boolean;
}

/** What kind of backup file a name tells; undefined for every other file. */
export function fileKind(name: string): FileKind | undefined {
  const lower = name.toLowerCase();
  if (lower.endsWith('.tar')) return { type: 'tar', compressed: false };
  if (lower.endsWith('.tar.zst')) return { type: 'tar', compressed: true };
  if (lower.endsWith('.ova')) return { type: 'OVA', compressed: false };
  if (lower.endsWith('.ovf')) return { type: 'OVF', compressed: false };
  // one definition stands for the directory that virtnbdbackup has written, and the others for nothing
  if (isVirtnbdMain(name)) return { type: 'virtnbdbackup', compressed: false };
  if (isVirtnbdPart(name)) return undefined;
  if (lower.endsWith('.xml')) return { type: 'xml', compressed: false };
  if (lower.endsWith('.vma')) return { type: 'vma', compressed: false };
  if (/\.vma\.(zst|gz|lzo)$/.test(lower)) return { type: 'vma', compressed: true };
  if (DISK_IMAGE.test(lower)) return { type: 'disk', compressed: false };
  return undefined;
}

/** The type that a backup's name tells; undefined of every other file. */
export const backupTypeOf = (name: string): FileKind['type'] | undefined => fileKind(name)?.type;

/** Whether a backup's name says that it is compressed. */
export const isCompressedName = (name: string): boolean => fileKind(name)?.compressed ?? false;

/**
 * Names of the backup files below a directory. Hidden names (files being written) are not looked at; what bears a backup's name
 * and is no regular file is skipped, as is a directory below that cannot be read. A directory that does not exist has none. Memory is
 * taken for what is found, not for what is there.
 * @throws VirtkeepError io_failed when the directory itself cannot be read
 */
export async function listBackupPaths(directory: string, limits = LIMITS): Promise<BackupPaths> {
  const [names, skipped]: [string[], Skipped[]] = [[], []];
  const waiting: { relative: string; depth: number }[] = [{ relative: '', depth: 1 }];
  const skip = (filename: string, reason: string) => {
    if (skipped.length < MAX_SKIPPED) skipped.push({ filename, reason });
  };
  const isFull = () => names.length >= limits.files || looked >= limits.names;
  const take = (entry: Dirent, { relative, depth }: { relative: string; depth: number }) => {
    const name = join(relative, entry.name);
    if (entry.isDirectory() && depth < MAX_DEPTH) waiting.push({ relative: name, depth: depth + 1 });
    else if (entry.isFile() && fileKind(name)) names.push(name);
    else if (fileKind(name)) skip(name, notAFile(name, specialKindOf(entry)!).message);
  };
  let looked = 0;
  for (let next = waiting.pop(); next && !isFull(); next = waiting.pop()) {
    const { relative } = next;
    try {
      for await (const entry of await opendir(join(directory, relative))) {
        looked += 1;
        if (!entry.name.startsWith('.')) take(entry, next);
        if (isFull()) break;
      }
    } catch (error) {
      if (relative !== '') skip(relative, reasonOf(error));
      else if (errnoOf(error) !== 'ENOENT') throw fromIoError(error, 'reading', directory);
    }
  }
  return { names: names.sort(), skipped, isCut: isFull() };
}
