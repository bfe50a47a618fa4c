import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';

/** Room for the time, a counter and the ending below the 255 bytes of a file name, also for the partial file's name. */
const MAX_NAME_BYTES = 120;
const MAX_SAME_SECOND = 100;

/** "20261120T232700Z": a time as file names carry it, UTC. */
export function timeStamp(time: Date): string {
  return `${time.toISOString().slice(0, 19).replaceAll(/[-:]/g, '')}Z`;
}

/**
 * A VM's name made fit for a file name: letters, digits, dot, dash and underscore of any script stay, the rest becomes
 * an underscore; no leading dot or dash; at most 120 bytes.
 */
export function safeFileStem(name: string): string {
  const clean = name
    .normalize('NFC')
    .replaceAll(/[^\p{L}\p{N}._-]/gu, '_')
    .replace(/^[.-]+/, '_');
  let stem = '';
  for (const character of clean) {
    if (Buffer.byteLength(stem + character) > MAX_NAME_BYTES) break;
    stem += character;
  }
  return stem || '_';
}

/**
 * A free path for a new archive in a directory. Nobody else takes it: the caller holds the VM, and the writer never
 * publishes over an existing file.
 * @throws VirtkeepError file_exists when a hundred backups of one second exist
 */
export function newArchivePath(
  directory: string,
  vmName: string,
  time: Date,
  compressed: boolean,
): Promise<string> {
  const stem = `${safeFileStem(vmName)}_${timeStamp(time)}`;
  return freePath(directory, stem, compressed ? '.tar.zst' : '.tar');
}

/** The stem with the ending, or with `_2`, `_3`… between when that is taken. @throws VirtkeepError file_exists */
export async function freePath(directory: string, stem: string, ending: string): Promise<string> {
  for (let count = 1; count <= MAX_SAME_SECOND; count += 1) {
    const path = join(directory, `${stem}${count === 1 ? '' : `_${count}`}${ending}`);
    const exists = await access(path).then(
      () => true,
      () => false,
    );
    if (!exists) return path;
  }
  throw new VirtkeepError('file_exists', { path: join(directory, stem) });
}
