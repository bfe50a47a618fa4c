import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';

export interface FileKind {
  type: 'tar' | 'xml' | 'OVA' | 'OVF';
  compressed: boolean;
}

/** An OVF stands in a directory of its own beside its disks; deeper ones are somebody else's. */
const MAX_DEPTH = 3;
const MAX_FILES = 100_000;

/** What kind of backup file a name tells; undefined for every other file. */
export function fileKind(name: string): FileKind | undefined {
  const lower = name.toLowerCase();
  if (lower.endsWith('.tar')) return { type: 'tar', compressed: false };
  if (lower.endsWith('.tar.zst')) return { type: 'tar', compressed: true };
  if (lower.endsWith('.ova')) return { type: 'OVA', compressed: false };
  if (lower.endsWith('.ovf')) return { type: 'OVF', compressed: false };
  if (lower.endsWith('.xml')) return { type: 'xml', compressed: false };
  return undefined;
}

/**
 * Names of the backup files below a directory, relative to it, sorted. Hidden names (files being written), links and
 * special files are not looked at. A directory that does not exist has none.
 * @throws VirtkeepError io_failed
 */
export async function listBackupPaths(directory: string): Promise<string[]> {
  const found: string[] = [];
  const waiting: { relative: string; depth: number }[] = [{ relative: '', depth: 1 }];
  for (let next = waiting.pop(); next && found.length < MAX_FILES; next = waiting.pop()) {
    const { relative, depth } = next;
    for (const entry of await entriesOf(join(directory, relative))) {
      if (entry.name.startsWith('.')) continue;
      const name = join(relative, entry.name);
      if (entry.isDirectory() && depth < MAX_DEPTH) waiting.push({ relative: name, depth: depth + 1 });
      if (entry.isFile() && fileKind(entry.name)) found.push(name);
    }
  }
  return found.sort();
}

async function entriesOf(directory: string) {
  try {
    return await readdir(directory, { withFileTypes: true });
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw fromIoError(error, 'reading', directory);
  }
}
