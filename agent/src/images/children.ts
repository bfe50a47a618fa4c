/** Images that stand on another one, whether a domain of this node knows of them or not. */
import { readdir, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { mapLimited } from '@virtkeep/shared/limit';
import { readImageHeader } from '../disks/index.ts';

/** Further files of one directory are not looked at: the search for images above another one is best effort. */
const MAX_FILES = 5_000;
const READS_AT_ONCE = 8;
/** Files with these endings are no qcow2 images. */
const NO_IMAGE = /\.(iso|memory|fd|tar|zst|sha256|xml|claim)$/;

/**
 * Per image the files that name it as their backing file, among those in its directory or in one of `further`.
 * @param paths real ones
 */
export async function childrenOf(
  paths: readonly string[],
  further: readonly string[],
): Promise<Map<string, string[]>> {
  const targets = new Set(paths);
  const found = new Map<string, string[]>();
  for (const directory of new Set([...paths.map(path => dirname(path)), ...further])) {
    const files = await filesIn(directory);
    await mapLimited(files, READS_AT_ONCE, async file => {
      const below = await backingOf(file);
      if (below !== undefined && targets.has(below)) found.set(below, [...(found.get(below) ?? []), file]);
    });
  }
  return found;
}

async function filesIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  return entries
    .filter(entry => entry.isFile() && !NO_IMAGE.test(entry.name))
    .slice(0, MAX_FILES)
    .map(({ name }) => join(directory, name));
}

/** One that cannot be read, or is going away, is no image. */
async function backingOf(path: string): Promise<string | undefined> {
  const header = await readImageHeader(path).catch(() => undefined);
  const below = header?.backingPath;
  return below === undefined ? undefined : realpath(below).catch(() => below);
}
