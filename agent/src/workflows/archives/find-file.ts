/** The file that a call names by its pool and its name there. */
import { lstat } from 'node:fs/promises';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import type { BackupFileRef } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { type PoolRecord, resolveBackup } from '../../pools/index.ts';

/** A backup file of a pool, found and judged; its path leads nowhere outside of the pool's `backups/`. */
export interface FoundFile {
  pool: PoolRecord;
  path: string;
  filename: string;
}

/** @throws VirtkeepError pool_not_found, pool_not_active, file_not_found, path_outside_pool */
export async function findBackupFile(
  pools: PoolRecord[],
  ref: BackupFileRef | undefined,
): Promise<FoundFile> {
  const filename = ref?.filename ?? '';
  const pool = pools.find(candidate => candidate.id === ref?.poolId);
  if (!pool) throw new VirtkeepError('pool_not_found', { id: ref?.poolId ?? '' });
  if (!pool.active || !pool.path)
    throw new VirtkeepError('pool_not_active', { pool: pool.name, node: 'this node' });
  if (filename === '') throw new VirtkeepError('missing_field', { field: 'file.filename' });
  try {
    const path = await resolveBackup(pool, filename);
    const found = await lstat(path);
    if (found.isFile()) return { pool, path, filename };
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw fromIoError(error, 'looking for', filename);
  }
  throw new VirtkeepError('file_not_found', { id: filename });
}
