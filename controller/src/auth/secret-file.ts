import { open, readFile } from 'node:fs/promises';
import { errnoOf } from '@virtkeep/shared/errors';

/**
 * Reads a secret file, or makes it (mode 0600, fsynced) when it is absent. Two processes that make it at once agree:
 * the one that comes second reads what the first wrote.
 */
export async function readOrCreateSecret(path: string, create: () => Buffer): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
  await writeSecret(path, create());
  return readFile(path);
}

/** Writes a file that must not exist yet, mode 0600; an existing one stays as it is. */
export async function writeSecret(path: string, content: Buffer | string): Promise<void> {
  try {
    const file = await open(path, 'wx', 0o600);
    try {
      await file.writeFile(content);
      await file.sync();
    } finally {
      await file.close();
    }
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error;
  }
}
