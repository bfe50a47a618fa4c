import { lstat, realpath } from 'node:fs/promises';
import { basename, dirname, join, normalize, sep } from 'node:path';
import { BACKUPS_DIR } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';

type Rooted = { name: string; path?: string };

/**
 * The absolute path of something inside a pool that exists or is about to be made; symbolic links are resolved, so that
 * what is opened is what was judged. Below `backups/` nobody swaps a directory in between, since it is reached through no link
 * (shared/src/beneath.ts); elsewhere only the owner of the pool's directories could.
 * @throws VirtkeepError path_outside_pool by `..`, an absolute path, a NUL or a link that leads out; io_failed
 */
export async function resolveInPool(pool: Rooted, relative: string): Promise<string> {
  const outside = new VirtkeepError('path_outside_pool', { path: relative, pool: pool.name });
  const clean = normalize(relative);
  const steps = clean.split(sep);
  if (!pool.path || relative === '' || relative.includes('\0')) throw outside;
  if (clean.startsWith(sep) || steps.includes('..')) throw outside;
  const root = await real(pool.path);
  if (root === undefined)
    throw new VirtkeepError('io_failed', {
      operation: 'opening',
      path: pool.path,
      reason: 'it does not exist',
    });
  const found = await deepestReal(join(root, clean));
  const resolved = found && join(found.base, found.rest);
  if (!resolved || !isInside(resolved, root)) throw outside;
  return resolved;
}

/**
 * As `resolveInPool`, of a backup file: its path below the pool's `backups/`, which is a directory and no link.
 * @throws VirtkeepError path_outside_pool, io_failed
 */
export async function resolveBackup(pool: Rooted, filename: string): Promise<string> {
  const path = await resolveInPool({ name: pool.name, path: join(pool.path ?? '', BACKUPS_DIR) }, filename);
  const root = await real(pool.path ?? '');
  if (root !== undefined && isInside(path, join(root, BACKUPS_DIR))) return path;
  throw new VirtkeepError('path_outside_pool', { path: filename, pool: pool.name });
}

/** True when a path lies below a directory (both without links). */
export function isInside(path: string, directory: string): boolean {
  return path.startsWith(directory.endsWith(sep) ? directory : directory + sep);
}

/** The longest part of a path that exists, without links, and the rest of it; undefined for a link to nowhere. */
async function deepestReal(path: string): Promise<{ base: string; rest: string } | undefined> {
  let [head, rest] = [path, ''];
  for (;;) {
    const base = await real(head);
    if (base !== undefined) return { base, rest };
    if (await isThere(head)) return undefined;
    rest = join(basename(head), rest);
    head = dirname(head);
  }
}

/** True when the name itself exists, be it a link that leads nowhere: opening it would follow it. */
async function isThere(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

async function real(path: string): Promise<string | undefined> {
  try {
    return await realpath(path);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw fromIoError(error, 'resolving', path);
  }
}
