import { randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf } from '@virtkeep/shared/errors';
import { syncDirectoryOf } from '@virtkeep/shared/files';

/** The file's text, or undefined when there is none. */
export async function readIfPresent(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** Writes a file whole or not at all, over what was there; its directory is made for the owner only. */
export async function writeDurably(path: string, text: string, mode: number): Promise<void> {
  await rename(await writeBeside(path, text, mode), path);
  await syncDirectoryOf(path);
}

/** As `writeDurably`, but a file that exists already (another process was first) stays as it is. */
export async function writeOnce(path: string, text: string, mode: number): Promise<void> {
  const temporary = await writeBeside(path, text, mode);
  try {
    await link(temporary, path);
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error;
  } finally {
    await rm(temporary, { force: true });
  }
  await syncDirectoryOf(path);
}

async function writeBeside(path: string, text: string, mode: number): Promise<string> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  const file = await open(temporary, 'wx', mode);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  return temporary;
}
