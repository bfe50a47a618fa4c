/** The ISO images below a pool's directory, read from there when they are asked for. */
import type { Stats } from 'node:fs';
import { lstat, opendir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { BACKUPS_DIR, inPoolDirectory } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, hasKey } from '@virtkeep/shared/errors';

export interface IsoImage {
  /** Relative to the pool's directory. */
  filename: string;
  path: string;
  sizeBytes: number;
  modified: Date;
}

/** Deeper ones are somebody else's. */
const MAX_DEPTH = 3;
/** How much of a directory is looked at, whoever filled it. */
const MAX_NAMES = 100_000;
const MAX_IMAGES = 10_000;

export const isIsoName = (name: string): boolean => name.toLowerCase().endsWith('.iso');

/**
 * The regular files below a directory that bear an image's name, by name; links are no images, and what bears a hidden name is not ready.
 * @throws VirtkeepError io_failed when the directory itself cannot be read
 */
export async function listIsoImages(directory: string): Promise<IsoImage[]> {
  const found: string[] = [];
  const waiting = [{ relative: '', depth: 1 }];
  let looked = 0;
  for (let next = waiting.pop(); next && looked < MAX_NAMES; next = waiting.pop()) {
    const { relative, depth } = next;
    try {
      for await (const entry of await namesOf(join(directory, relative))) {
        looked += 1;
        if (looked > MAX_NAMES || found.length >= MAX_IMAGES) break;
        const name = join(relative, entry.name);
        if (entry.name.startsWith('.') || name === BACKUPS_DIR) continue;
        if (entry.isDirectory() && depth < MAX_DEPTH) waiting.push({ relative: name, depth: depth + 1 });
        else if (entry.isFile() && isIsoName(name)) found.push(name);
      }
    } catch (error) {
      if (relative === '') throw fromIoError(error, 'reading', directory);
    }
  }
  const images: IsoImage[] = [];
  for (const filename of found.sort()) {
    const image = await imageAt(directory, filename);
    if (image) images.push(image);
  }
  return images;
}

/** Of the very directory, whatever is in its place a moment later: the stream has a descriptor of its own. */
const namesOf = (directory: string) => inPoolDirectory(join(directory, 'any'), at => opendir(at));

/** What bears a name in the pool. @throws VirtkeepError path_outside_pool, else the file system's own error */
export const lookInPool = (path: string): Promise<Stats> =>
  inPoolDirectory(path, directory => lstat(join(directory, basename(path))));

async function imageAt(directory: string, filename: string): Promise<IsoImage | undefined> {
  const path = join(directory, filename);
  try {
    const found = await lookInPool(path);
    return found.isFile() ? { filename, path, sizeBytes: found.size, modified: found.mtime } : undefined;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || hasKey(error, 'path_outside_pool')) return undefined;
    throw fromIoError(error, 'looking at', path);
  }
}
