import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { fromIoError } from '@virtkeep/shared/errors';
import { openFile } from './container/directory.ts';

/** Where the bytes of an image stand. */
export interface Source {
  /** A file that programs can open: of a member, its `place`. */
  path: string;
  offset: number;
  sizeBytes: number;
  /** What people call it. */
  name: string;
}

/** Opens what a source is in. @throws VirtkeepError not_a_file, io_failed */
export async function openSource({ path, name }: Source): Promise<FileHandle> {
  if (!path.startsWith(HELD)) return openFile(path);
  try {
    return await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch (error) {
    throw fromIoError(error, 'opening', name);
  }
}

/** What the appliance holds open was looked at when it was opened; the kernel shows it as a link. */
const HELD = `/proc/${process.pid}/fd/`;
