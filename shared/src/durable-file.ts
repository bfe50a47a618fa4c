/**
 * Small files that must be whole or absent: keys, certificates, secrets. They are written beside their place, forced to the
 * disk and given their name, so that neither a crash nor somebody who reads at that moment meets a part of one.
 */
import { randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf } from './errors.ts';
import { syncDirectoryOf } from './files.ts';

/** The file's text, or undefined when there is none. @throws the file system's own error */
export async function readIfPresent(path: string): Promise<string | undefined> {
  return (await bytesIfPresent(path))?.toString('utf8');
}

/** Writes a file over what was there; its directory is made for the owner only. @throws the file system's own error */
export async function writeDurably(path: string, content: string | Buffer, mode: number): Promise<void> {
  await placeFrom(path, content, mode, temporary => rename(temporary, path));
}

/** As `writeDurably`, but a file that exists already (another process was first) stays as it is. */
export async function writeOnce(path: string, content: string | Buffer, mode: number): Promise<void> {
  await placeFrom(path, content, mode, temporary =>
    link(temporary, path).catch(error => {
      if (errnoOf(error) !== 'EEXIST') throw error;
    }),
  );
}

/** The file's content; made when there is none. Two that make it at once get the same. @throws the file system's own error */
export async function readOrWriteOnce(
  path: string,
  make: () => Promise<string | Buffer>,
  mode: number,
): Promise<Buffer> {
  const present = await bytesIfPresent(path);
  if (present) return present;
  await writeOnce(path, await make(), mode);
  return readFile(path);
}

/** As `readIfPresent`, of a file that is no text. */
export async function bytesIfPresent(path: string): Promise<Buffer | undefined> {
  try {
    return await readFile(path);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

async function placeFrom(
  path: string,
  content: string | Buffer,
  mode: number,
  place: (temporary: string) => Promise<void>,
): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  try {
    const file = await open(temporary, 'wx', mode);
    try {
      await file.writeFile(content);
      await file.sync();
    } finally {
      await file.close();
    }
    await place(temporary);
  } finally {
    await rm(temporary, { force: true });
  }
  await syncDirectoryOf(path);
}
