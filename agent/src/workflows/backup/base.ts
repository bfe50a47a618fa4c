/** The archive that is to be extended. */
import { basename, dirname, join } from 'node:path';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import {
  type FileLock,
  lockFile,
  type Manifest,
  openArchive,
  putTailsBack,
  type TarSize,
  whyGrown,
  whyTooLarge,
} from '../../archive/index.ts';
import { backupTargetRefusal, type PoolRecord } from '../../pools/index.ts';
import { type FoundFile, findBackupFile } from '../archives/find-file.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { retireArchive } from './retired.ts';

export interface BaseArchive {
  pool: PoolRecord;
  path: string;
  filename: string;
  manifest: Manifest;
  /** Exclusive, until the operation lets go of it. */
  lock: FileLock;
}

/**
 * Finds, locks and reads the archive of a request; the caller releases the lock.
 * @throws VirtkeepError pool_not_found, file_not_found and what else `findBackupFile` raises; the refusals of a target pool;
 *   archive_damaged, archive_unsupported, not_extendable, file_busy
 */
export async function readBase(
  request: StartBackupRequest,
  pools: PoolRecord[],
  { nodeName, growthLimits, settings }: Pick<WorkflowDependencies, 'nodeName' | 'growthLimits' | 'settings'>,
  signal: AbortSignal,
): Promise<BaseArchive> {
  const found = await findBackupFile(pools, request.extend);
  const refusal = backupTargetRefusal(found.pool, nodeName);
  if (refusal) throw refusal;
  const lock = await lockFile(found.path, 'exclusive');
  try {
    const { extendArchiveId, extendFileId } = request;
    const manifest = await manifestOf(found, lock, extendArchiveId || extendFileId, signal);
    const grown = whyGrown(manifest, growthLimits);
    if (grown !== null) {
      retireArchive(settings, request.domainId, manifest.backupId);
      throw notExtendable(found.filename, grown);
    }
    return { ...found, lock, manifest };
  } catch (error) {
    await lock.release();
    throw error;
  }
}

/**
 * A compressed archive that no reader would take with what is to be added is not extended. Where another may take its place it is left
 * behind: the disks' changes since its last state only become more. Elsewhere it may be extended with disks or images left out.
 * @param size of all that the archive is going to hold
 * @throws VirtkeepError not_extendable
 */
export function refuseTooLarge(
  { filename, manifest }: BaseArchive,
  { domainId, fallbackFull }: Pick<StartBackupRequest, 'domainId' | 'fallbackFull'>,
  size: TarSize,
  { settings, mostFrames }: Pick<WorkflowDependencies, 'settings' | 'mostFrames'>,
): void {
  const reason = whyTooLarge(size, mostFrames);
  if (reason === null) return;
  if (fallbackFull) retireArchive(settings, domainId, manifest.backupId);
  throw notExtendable(filename, reason);
}

async function manifestOf(
  { path, filename }: FoundFile,
  lock: FileLock,
  expectedId: string,
  signal: AbortSignal,
): Promise<Manifest> {
  await putTailsBack(path, lock, signal);
  const archive = await openArchive(path, signal, { holding: lock });
  const { manifest } = archive;
  await archive.close();
  if (!manifest) throw notExtendable(filename, 'it has no manifest of this service');
  if (expectedId !== '' && expectedId !== manifest.backupId)
    throw notExtendable(filename, 'it is a copy of another backup');
  return manifest;
}

/** Where the archive's old end is kept while an operation extends it. */
export const tailPathOf = (path: string, operationId: string): string =>
  join(dirname(path), `.${basename(path)}.${operationId}.tail`);

/** The refusal to extend an archive; `reason` is a sentence without its full stop. */
export function notExtendable(file: string, reason: string): VirtkeepError {
  return new VirtkeepError('not_extendable', { file, reason });
}

/** Why an archive cannot be extended, as a sentence for its successor's manifest; null for errors of another kind. */
export function fallbackReason(error: unknown): string | null {
  if (hasKey(error, 'not_extendable')) return String(error.params.reason);
  const isOfFile = hasKey(
    error,
    'pool_not_found',
    'pool_not_active',
    'pool_not_mounted',
    'pool_read_only',
    'pool_outside',
    'pool_kind_unsupported',
    'file_not_found',
    'path_outside_pool',
    'archive_damaged',
    'archive_unsupported',
    'hash_mismatch',
  );
  return isOfFile ? error.message : null;
}
