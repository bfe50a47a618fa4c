/** Removes a backup file and its hash file, or a disk image that lies among them. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { removeArchive } from '../../archive/index.ts';
import { removeImages } from '../../images/index.ts';
import { backupTypeOf } from '../../pools/index.ts';
import type { Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';

/**
 * Repeating it after a crash is harmless. Whoever reads the file on this node holds its lock, so the start was refused then;
 * whoever reads it on another holds the lock on the file itself. A VM may run from a disk image, wherever it lies: then that stays.
 */
export function deleteBackupWorkflow(
  dependencies: WorkflowDependencies,
  path: string,
  filesChanged: () => void,
): Workflow {
  return async context => {
    await context.step('delete', () =>
      backupTypeOf(path) === 'disk' ? removeUnused(dependencies, path, context.signal) : removeArchive(path),
    );
    context.commit();
    filesChanged();
  };
}

/** @throws VirtkeepError image_in_use, image_use_unknown */
async function removeUnused(
  dependencies: WorkflowDependencies,
  path: string,
  signal: AbortSignal,
): Promise<void> {
  const [left] = await removeImages(dependencies, [path], { signal });
  if (!left) return;
  const { why, reason } = left;
  if (why === 'used') throw new VirtkeepError('image_in_use', { path, user: reason });
  throw new VirtkeepError('image_use_unknown', { path, reason });
}
