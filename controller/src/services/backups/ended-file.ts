/** Which backup file the end of an operation is about. A node is believed only about its own tasks, and the files of its pools. */
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { required, resultOf } from '@virtkeep/shared/operation-result';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import type { Inventory } from '../inventory/inventory.ts';
import { type EndedOperation, entityOf } from '../tasks/ends.ts';

/** The archive that is in an operation's result. @throws Error none is */
export function resultFile(
  { operation }: EndedOperation,
  $case: 'backup' | 'recompress' | 'recompressCopy' | 'convertBackup' | 'exportBackup' | 'trim',
): BackupFile {
  return required(resultOf(operation, $case).file, 'file');
}

/**
 * The file that an operation was about: the one that the task is about, and without a task one in a pool that the node has.
 * @throws Error the node tells of another one
 */
export async function fileOf(
  { nodeId, operation, task }: EndedOperation,
  { backupFiles, inventory }: { backupFiles: BackupFiles; inventory: Inventory },
): Promise<string> {
  const id = entityOf(operation, EntityClass.FILE);
  const row = await backupFiles.find(id);
  const isIts = task
    ? task.entities.some(entity => entity.id === id)
    : !row || inventory.pools.get(row.pool_id)?.views.has(nodeId) !== false;
  if (!isIts) throw new Error(`the node tells of the file ${id}, which the operation cannot be about`);
  return id;
}
