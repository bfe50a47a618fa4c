/** Removes a backup file and its hash file. */
import { rm } from 'node:fs/promises';
import { fromIoError } from '@virtkeep/shared/errors';
import { syncDirectoryOf } from '@virtkeep/shared/files';
import { sha256PathOf } from '../archive/index.ts';
import type { Workflow } from './context.ts';

/**
 * The archive goes first: a hash file without archive is harmless, an archive that lost its hash file looks unproved.
 * Repeating it after a crash is harmless. Whoever reads the file holds its lock, so the start was refused then.
 */
export function deleteBackupWorkflow(path: string, filesChanged: () => void): Workflow {
  return async context => {
    await context.step('delete', async () => {
      try {
        await rm(path, { force: true });
        await rm(sha256PathOf(path), { force: true });
        await syncDirectoryOf(path);
      } catch (error) {
        throw fromIoError(error, 'removing', path);
      }
    });
    context.commit({});
    filesChanged();
  };
}
