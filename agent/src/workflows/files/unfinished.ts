/** A file that bytes of a caller are written to, under a hidden name beside the one that it is going to have. */
import type { FileHandle } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { inPoolDirectory } from '@virtkeep/shared/beneath';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { writeAt } from '@virtkeep/shared/file-bytes';
import { openForeign } from '@virtkeep/shared/foreign-file';
import { type FileMark, hasMark } from '../../images/index.ts';

/** The file that the bytes are written to. */
export interface Unfinished {
  path: string;
  mark: FileMark;
}

/**
 * Opens it for writing. Somebody may have put another file under its name since it was made: that one is refused.
 * @throws VirtkeepError io_failed, path_outside_pool
 */
export async function openUnfinished({ path, mark }: Unfinished): Promise<FileHandle> {
  const open = (directory: string) => openForeign(join(directory, basename(path)), 'update');
  const file = await inPoolDirectory(path, open).catch(error => {
    throw fromIoError(error, 'opening', path);
  });
  try {
    if (await hasMark(file, mark)) return file;
    throw new VirtkeepError('io_failed', { operation: 'opening', path, reason: 'another file is there' });
  } catch (error) {
    await file.close();
    throw fromIoError(error, 'opening', path);
  }
}

/** @throws VirtkeepError disk_full, io_failed */
export async function writeUnfinished(
  file: FileHandle,
  path: string,
  data: Uint8Array,
  offset: number,
): Promise<void> {
  try {
    await writeAt(file, data, offset);
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
}

/** Makes what was written durable. @throws VirtkeepError disk_full, io_failed */
export async function syncUnfinished(file: FileHandle, path: string): Promise<void> {
  try {
    await file.sync();
  } catch (error) {
    throw fromIoError(error, 'syncing', path);
  }
}
