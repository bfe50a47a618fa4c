/** The name of a new archive: taken before anything is copied, so that no other VM, conversion or node gets the same. */
import { join } from 'node:path';
import { mkdir } from '@virtkeep/shared/beneath';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { type FileLock, isNameTooLong, partialPathOf, reserveName } from '../../archive/index.ts';
import type { OperationContext } from '../context.ts';
import type { EffectHandle } from '../effect.ts';
import { namesOf } from './file-name.ts';

/** Removing one small file, on a pool that may be slow. */
const FREE_TIMEOUT_MS = 600_000;

export interface ReservedName {
  path: string;
  /** Lets go of it without freeing it: the effect does that, after what was published under it is undone. */
  close(): Promise<void>;
  /** To be called after the commit. @throws VirtkeepError io_failed: the effect is undone later */
  free(): Promise<void>;
}

/**
 * Reserves the first of the names that is free, and declares what undoes it. Makes the directory when it is not there.
 * @throws VirtkeepError invalid_name, file_exists when a hundred of them are taken, io_failed, disk_full
 */
export async function reserveArchiveName(
  context: OperationContext,
  directory: string,
  stem: string,
  ending: string,
): Promise<ReservedName> {
  const found = await reserveFirst(context, directory, namesOf(stem, ending));
  if (found === null) throw new VirtkeepError('file_exists', { path: join(directory, stem) });
  return found;
}

/**
 * Reserves the first of these names that is free, and declares what undoes it; null: none is. Makes the directory when it is not there.
 * @throws VirtkeepError invalid_name, io_failed, disk_full
 */
export async function reserveFirst(
  context: OperationContext,
  directory: string,
  names: readonly string[],
): Promise<ReservedName | null> {
  await makeDirectory(directory);
  for (const name of names) {
    const path = join(directory, name);
    if (isNameTooLong(path))
      throw new VirtkeepError('invalid_name', { value: name, reason: 'it is too long for an archive' });
    const handle = context.effects.begin({ type: 'reserved_name', path, owner: context.id }, 'always');
    const lock = await reserveName(path, context.id);
    if (lock !== null) return reserved(path, lock, handle);
    handle.keep();
  }
  return null;
}

async function makeDirectory(directory: string): Promise<void> {
  try {
    await mkdir(directory, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw fromIoError(error, 'making', directory);
  }
}

/** How names of archives of that form end. */
export const endingOf = (compress: boolean): string => (compress ? '.tar.zst' : '.tar');

function reserved(path: string, lock: FileLock, handle: EffectHandle): ReservedName {
  return {
    path,
    close: () => lock.release(),
    free: async () => {
      await lock.release();
      await handle.undo(AbortSignal.timeout(FREE_TIMEOUT_MS));
    },
  };
}

/** Declares a new archive at a reserved name. @param states how many it is going to have */
export function declareArchive(
  context: OperationContext,
  path: string,
  { backupId, states }: { backupId: string; states: number },
): void {
  const partialPath = partialPathOf(path, backupId);
  const effect = {
    type: 'archive',
    backupId,
    partialPath,
    finalPath: path,
    owner: context.id,
    states,
  } as const;
  context.effects.begin(effect, 'failure');
}
