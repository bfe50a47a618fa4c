/** What tells whether a backup file has changed, without reading it. */
import { basename, dirname, join } from 'node:path';
import { lstatAll, lstatBig, opendir, type SizeAndChange } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';
import { isVirtnbdFile, isVirtnbdMain, virtnbdDescription } from '@virtkeep/shared/virtnbd-names';

export interface FileFacts extends SizeAndChange {
  mtime: Date;
  birthtimeNs: bigint;
}

/** A backup of virtnbdbackup's has a few files for each of its restore points. */
const MAX_NAMES = 50_000;

/**
 * Of one that is a directory of virtnbdbackup's the size and the last change of all its files, descriptions only for their change.
 * @returns undefined: it is not there. @throws VirtkeepError io_failed
 */
export async function factsOf(path: string): Promise<FileFacts | undefined> {
  const own = await lstatOf(path);
  return own && isVirtnbdMain(path) ? await wholeOf(path, own) : own;
}

/**
 * What has changed of many files of one directory for a fraction of the cost, as far as it can be told at once: of what is missing here,
 * {@link factsOf} tells why.
 */
export async function glanceAt(
  directory: string,
  names: readonly string[],
): Promise<Map<string, SizeAndChange>> {
  const plain = names.filter(name => !isVirtnbdMain(name));
  return lstatAll(directory, plain).catch(() => new Map<string, SizeAndChange>());
}

async function wholeOf(path: string, own: FileFacts): Promise<FileFacts> {
  const directory = dirname(path);
  let { size, mtime, mtimeNs } = own;
  let looked = 0;
  try {
    for await (const { name } of await opendir(directory)) {
      looked += 1;
      if (looked > MAX_NAMES) break;
      const counts = isVirtnbdFile(name);
      if (name === basename(path) || !(counts || virtnbdDescription(name))) continue;
      const part = await lstatOf(join(directory, name));
      if (!part) continue;
      if (counts) size += part.size;
      if (part.mtimeNs > mtimeNs) ({ mtime, mtimeNs } = part);
    }
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return own;
    throw fromIoError(error, 'reading', directory);
  }
  return { size, mtime, mtimeNs, birthtimeNs: own.birthtimeNs };
}

async function lstatOf(path: string): Promise<FileFacts | undefined> {
  try {
    return await lstatBig(path);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw fromIoError(error, 'reading', path);
  }
}
