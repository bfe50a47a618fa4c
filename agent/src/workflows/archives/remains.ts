/** What is left of archives that were being made or converted when their operation ended. */
import { exists, removePath } from '@virtkeep/shared/files';
import {
  type FileLock,
  lockFile,
  ownsName,
  partialPathsOf,
  removeArchive,
  sha256PathOf,
} from '../../archive/index.ts';
import { isOwnFile } from '../../images/index.ts';
import type { Effect } from '../effect.ts';
import { contentOf } from './content.ts';

type Unfinished = Extract<Effect, { type: 'archive' }>;
type Replaced = Extract<Effect, { type: 'replaced_archive' }>;

/**
 * Removes an archive that was never committed: its partial files, and the published one when it is proved to be ours.
 * @throws VirtkeepError file_busy while somebody reads it, io_failed
 */
export async function removeUnfinished(effect: Unfinished, signal: AbortSignal): Promise<void> {
  const { partialPath, finalPath, owner } = effect;
  for (const path of partialPathsOf(partialPath)) await removePath(path);
  if (owner !== undefined && !(await ownsName(finalPath, owner))) return;
  if (!(await exists(finalPath))) {
    // a removal that was cut off behind the archive; nobody else publishes under a name that is ours
    if (owner !== undefined) await removePath(sha256PathOf(finalPath));
    return;
  }
  const lock = await lockFile(finalPath, 'exclusive');
  try {
    if (await isOurs(effect, lock, signal)) await removeArchive(finalPath, lock);
  } finally {
    await lock.release();
  }
}

/** The name may have been taken by another since, and what we published may have been extended. */
async function isOurs(
  { finalPath, backupId, states }: Unfinished,
  lock: FileLock,
  signal: AbortSignal,
): Promise<boolean> {
  const found = await contentOf(finalPath, lock, signal);
  return found?.backupId === backupId && (states === undefined || found.states === states);
}

export interface RemovalOptions {
  signal: AbortSignal;
  /** Told when the archive stays. */
  warn: (text: string) => void;
  /** Exclusive, of the archive, which stays the caller's; absent: one is taken meanwhile. */
  lock?: FileLock;
}

/**
 * Removes an archive whose converted form is in place, and holds all that it holds: either may have been extended,
 * converted back or replaced since, by another node when this one died in between.
 * @throws VirtkeepError file_busy while somebody reads it, io_failed, canceled
 */
export async function removeReplaced(
  effect: Replaced,
  { signal, warn, lock }: RemovalOptions,
): Promise<void> {
  const { path, by } = effect;
  if (!(await exists(by))) return;
  if (!(await exists(path))) return removeOwnHashFile(effect);
  const own = lock ?? (await lockFile(path, 'exclusive'));
  try {
    await own.confirm();
    if (await isCovered(effect, own, signal)) await removeArchive(path, own);
    else
      warn(
        `The archive ${path}, which was converted into ${by}, was left: one of the two has changed since.`,
      );
  } finally {
    if (own !== lock) await own.release();
  }
}

/** Of a removal that was cut off behind the archive. By now another archive may be about to take the name. */
async function removeOwnHashFile({ path, was }: Replaced): Promise<void> {
  const mark = was?.hashFile;
  const hashFile = sha256PathOf(path);
  if (mark && (await isOwnFile({ type: 'file', path: hashFile, made: mark }))) await removePath(hashFile);
}

async function isCovered({ path, by, was }: Replaced, lock: FileLock, signal: AbortSignal): Promise<boolean> {
  const converted = await contentOf(by, 'none', signal);
  const now = await contentOf(path, lock, signal);
  const expected = was ?? converted;
  if (!converted || !now || !expected) return false;
  if ([converted.backupId, now.backupId].some(id => id !== expected.backupId)) return false;
  const isAsItWas = was === undefined || now.sizeBytes === was.sizeBytes;
  return isAsItWas && now.states === expected.states && converted.states >= expected.states;
}
