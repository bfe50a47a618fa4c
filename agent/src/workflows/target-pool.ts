/** The pool that an operation writes to, looked at again when it begins. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { backupTargetRefusal, type PoolRecord } from '../pools/index.ts';
import type { WorkflowDependencies } from './dependencies.ts';

/**
 * Refuses when the pool may not be written to any more. It was chosen when the operation was asked for, which may have waited for hours
 * since: what is written where nothing is mounted fills the node's own disk, and is hidden when the pool comes back.
 * @throws VirtkeepError pool_not_found, and the refusals of pools
 */
export async function requireStillTarget(
  { pools, nodeName }: Pick<WorkflowDependencies, 'pools' | 'nodeName'>,
  { id }: Pick<PoolRecord, 'id'>,
  signal: AbortSignal,
): Promise<void> {
  const pool = (await pools(signal)).find(candidate => candidate.id === id);
  if (!pool) throw new VirtkeepError('pool_not_found', { id });
  const refusal = backupTargetRefusal(pool, nodeName);
  if (refusal) throw refusal;
}
