/**
 * What libvirt wrote down last, made to survive a power cut. It flushes a new file's content and renames it into place, but not
 * the directory (9.0): on a file system of its own the former definition may come back, and name an image that went meanwhile.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';
import { syncDirectory } from '@virtkeep/shared/files';
import { LIBVIRT_PLACES } from './room.ts';

/** What was changed longer ago every file system has written by itself, within a minute at most. */
const RECENT_MS = 600_000;

/**
 * Flushes libvirt's directories of definitions and of saved states, as far as they were changed lately.
 * @throws VirtkeepError io_failed
 */
export async function flushDefinitions({
  definitions,
  states,
}: Pick<typeof LIBVIRT_PLACES, 'definitions' | 'states'> = LIBVIRT_PLACES): Promise<string[]> {
  const ofStates = await readdir(states).catch(() => []);
  const flushed: string[] = [];
  for (const path of [definitions, states, ...ofStates.map(name => join(states, name))])
    if (await flushRecent(path)) flushed.push(path);
  return flushed;
}

async function flushRecent(path: string): Promise<boolean> {
  try {
    // a clock that was set back makes it recent, too
    if (Date.now() - (await stat(path)).ctimeMs > RECENT_MS) return false;
    await syncDirectory(path);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw fromIoError(error, 'writing', path);
  }
}
