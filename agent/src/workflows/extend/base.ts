/** The archive that is to be extended. */
import { readdir, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { type GrowthLimits, type Manifest, openArchive, whyGrown } from '../../archive/index.ts';
import { backupTargetRefusal, type PoolRecord } from '../../pools/index.ts';
import { findBackupFile } from '../restore/source.ts';

export interface BaseArchive {
  pool: PoolRecord;
  path: string;
  filename: string;
  manifest: Manifest;
}

/**
 * Finds and reads the archive of a request. The caller holds the file exclusively.
 * @throws VirtkeepError pool_not_found, file_not_found and what else `findBackupFile` raises; the refusals of a target pool;
 *   archive_damaged, archive_unsupported, not_extendable
 */
export async function readBase(
  request: StartBackupRequest,
  pools: PoolRecord[],
  { nodeName, growthLimits }: { nodeName: string; growthLimits?: GrowthLimits },
  signal: AbortSignal,
): Promise<BaseArchive> {
  const found = await findBackupFile(pools, request.extend);
  const refusal = backupTargetRefusal(found.pool, nodeName);
  if (refusal) throw refusal;
  const { path, filename } = found;
  await removeStaleTails(path);
  const archive = await openArchive(path, signal);
  const { manifest } = archive;
  await archive.close();
  if (!manifest) throw notExtendable(filename, 'it has no manifest of this service');
  if (request.extendFileId !== '' && request.extendFileId !== manifest.backupId)
    throw notExtendable(filename, 'it is a copy of another backup');
  const grown = whyGrown(manifest, growthLimits);
  if (grown !== null) throw notExtendable(filename, grown);
  return { ...found, manifest };
}

/** Where the archive's old end is kept while an operation extends it. */
export const tailPathOf = (path: string, operationId: string): string =>
  join(dirname(path), `.${basename(path)}.${operationId}.tail`);

/**
 * A crash between the commit of an extension and the removal of the old end leaves that file. Whoever holds the archive
 * knows that no undo needs it: an operation keeps its locks until its effects are undone.
 */
async function removeStaleTails(path: string): Promise<void> {
  const directory = dirname(path);
  const start = `.${basename(path)}.`;
  const isTail = (name: string) =>
    name.startsWith(start) && /^[0-9a-f-]{36}\.tail(\.[a-z0-9]+)?$/.test(name.slice(start.length));
  try {
    for (const name of await readdir(directory))
      if (isTail(name)) await rm(join(directory, name), { force: true });
  } catch (error) {
    throw fromIoError(error, 'clearing', directory);
  }
}

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
  );
  return isOfFile ? error.message : null;
}
