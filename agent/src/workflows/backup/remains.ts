/** What is left of archives that were being made or replaced when their operation ended. */
import { hasKey } from '@virtkeep/shared/errors';
import { exists, removePath } from '@virtkeep/shared/files';
import {
  type FileLock,
  lockFile,
  openArchive,
  ownsName,
  partialPathsOf,
  removeArchive,
} from '../../archive/index.ts';
import type { Effect } from '../context.ts';

type Unfinished = Extract<Effect, { type: 'archive' }>;

/**
 * Removes an archive that was never committed: its partial files, and the published one when it is proved to be ours.
 * @throws VirtkeepError file_busy while somebody reads it, io_failed
 */
export async function removeUnfinished(effect: Unfinished, signal: AbortSignal): Promise<void> {
  const { partialPath, finalPath, owner } = effect;
  for (const path of partialPathsOf(partialPath)) await removePath(path);
  if (owner !== undefined && !(await ownsName(finalPath, owner))) return;
  if (!(await exists(finalPath))) return;
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
  try {
    const archive = await openArchive(finalPath, signal, { holding: lock });
    await archive.close();
    const { manifest } = archive;
    if (manifest?.backupId !== backupId) return false;
    return states === undefined || manifest.states.length === states;
  } catch (error) {
    if (hasKey(error, 'archive_damaged', 'archive_unsupported')) return false;
    throw error;
  }
}

/**
 * Removes an archive whose converted form is in place. That may be gone again, after a conversion back under the old name:
 * then the old name is another archive's.
 * @throws VirtkeepError file_busy while somebody reads it, io_failed
 */
export async function removeReplaced({ path, by }: { path: string; by: string }): Promise<void> {
  if (await exists(by)) await removeArchive(path);
}
