import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { basename } from 'node:path';
import { nameOf } from '@virtkeep/shared/beneath';
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

/** A file that is an image as a whole, held open: what was looked at is what a program gets later, whatever its name means by then. */
export interface HeldSource extends Source {
  close(): Promise<void>;
}

/**
 * Opens a regular file, through no link. Whoever closes it has ended what reads it.
 * @throws VirtkeepError not_a_file, path_outside_pool, io_failed
 */
export async function holdSource(path: string): Promise<HeldSource> {
  const file = await openFile(path);
  try {
    const { size } = await file.stat();
    return {
      path: nameOf(file),
      offset: 0,
      sizeBytes: size,
      name: basename(path),
      close: () => file.close(),
    };
  } catch (error) {
    await file.close();
    throw fromIoError(error, 'opening', path);
  }
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
