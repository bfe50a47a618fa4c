/** Removes a backup file and its hash file. */
import { removeArchive } from '../../archive/index.ts';
import type { Workflow } from '../context.ts';

/**
 * Repeating it after a crash is harmless. Whoever reads the file on this node holds its lock, so the start was refused then;
 * whoever reads it on another holds the lock on the file itself.
 */
export function deleteBackupWorkflow(path: string, filesChanged: () => void): Workflow {
  return async context => {
    await context.step('delete', () => removeArchive(path));
    context.commit();
    filesChanged();
  };
}
