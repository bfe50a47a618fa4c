/** The hidden file of an upload beside the name that it is going to have: made, and removed again. */
import { basename, dirname, join } from 'node:path';
import { mkdir, rmdir } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { exists, removePath, syncDirectoryOf } from '@virtkeep/shared/files';
import { uuidV5 } from '@virtkeep/shared/ids';
import { fileMarkAt, isOwnFile, makeOwnFile } from '../../../images/index.ts';
import {
  BACKUPS_DIR,
  backupTargetRefusal,
  type PathGate,
  type PoolRecord,
  type ReadablePool,
  readablePool,
  requireSpace,
  resolveBackup,
} from '../../../pools/index.ts';
import { uploadNameFault } from './names.ts';
import type { UploadRecord, UploadRecords } from './record.ts';

/** So often somebody else may take an empty directory away that a file was about to be made in. */
const TRIES = 5;
const NAMESPACE = '5d0c7a52-8b0e-4b53-9d0e-6c2a0b0f6f7e';

export interface UploadPlace {
  pool: ReadablePool;
  filename: string;
  path: string;
  /**
   * The hidden name follows from the real one, and is made so that it replaces nothing: of two uploads of one name only one begins, also
   * of two nodes that share the pool.
   */
  partial: string;
}

interface Wanted {
  poolId: string;
  filename: string;
  sizeBytes: number;
}

/**
 * Where a new file goes.
 * @throws VirtkeepError as `readablePool`; pool_read_only, pool_outside, pool_ownership, invalid_name, path_outside_pool, file_exists,
 *   pool_no_space, io_failed
 */
export async function newUploadPlace(
  pools: readonly PoolRecord[],
  { poolId, filename, sizeBytes }: Wanted,
  { nodeName, gate }: { nodeName: string; gate: PathGate },
): Promise<UploadPlace> {
  const pool = readablePool(pools, poolId, nodeName);
  const refusal = backupTargetRefusal(pool, nodeName);
  if (refusal) throw refusal;
  const reason = uploadNameFault(filename);
  if (reason !== undefined)
    throw new VirtkeepError('invalid_name', { value: filename.slice(0, 300), reason, field: 'filename' });
  const path = await gate.run(poolId, async () => {
    await makeBackups(pool);
    const found = await resolveBackup(pool, filename);
    if (await exists(found)) throw new VirtkeepError('file_exists', { path: found, field: 'filename' });
    await requireSpace(pool, sizeBytes);
    return found;
  });
  if (path === undefined)
    throw new VirtkeepError('io_failed', {
      operation: 'opening',
      path: pool.path,
      reason: 'its file system does not answer',
    });
  const hidden = `.virtkeep-${uuidV5(NAMESPACE, basename(path))}.upload`;
  return { pool, filename, path, partial: join(dirname(path), hidden) };
}

/** It stays, as that of a backup does. */
async function makeBackups({ path }: ReadablePool): Promise<void> {
  const directory = join(path, BACKUPS_DIR);
  try {
    await mkdir(directory, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw fromIoError(error, 'making', directory);
  }
}

/**
 * Makes the hidden file, with what is missing of its directory; the record has both before.
 * @throws VirtkeepError upload_under_way, disk_full, io_failed, path_outside_pool; then nothing is left
 */
export async function makePartial(records: UploadRecords, record: UploadRecord): Promise<void> {
  records.put(record);
  const { id, path } = record;
  const { path: partial } = record.partial;
  try {
    for (let tried = 1; ; tried += 1) {
      await makeDirectory(records, record);
      try {
        await makeOwnFile(partial, effect => declare(records, id, effect), { inPool: true });
        return;
      } catch (error) {
        if (tried === TRIES || (await exists(dirname(path)))) throw error;
      }
    }
  } catch (error) {
    await removePartial(records, records.find(id)!).catch(() => {});
    if (hasKey(error, 'file_exists')) throw new VirtkeepError('upload_under_way', { path, partial });
    throw error;
  }
}

function declare(records: UploadRecords, id: string, partial: UploadRecord['partial']) {
  const { claim } = partial;
  records.change(id, { partial, ...(claim !== undefined && { claim }) });
  // what is kept besides is looked for once more at the end, in vain
  return { keep: () => {} };
}

async function makeDirectory(records: UploadRecords, { id, path, poolPath }: UploadRecord): Promise<void> {
  const directory = dirname(path);
  const backups = join(poolPath, BACKUPS_DIR);
  if (await exists(directory)) return;
  if (directory !== backups) records.change(id, { madeDirectory: true });
  try {
    await mkdir(directory, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw fromIoError(error, 'making', directory);
  }
}

/**
 * Removes what is there of an upload, and its record. What is not its own stays.
 * @throws VirtkeepError io_failed, journal_failed: then the record stays
 */
export async function removePartial(records: UploadRecords, record: UploadRecord): Promise<void> {
  const { id, partial, path, madeDirectory } = record;
  // without a mark or a claim nothing was made yet
  const isDeclared = partial.claim !== undefined || partial.made !== undefined;
  if (isDeclared && (await isOwnFile(partial))) await removePath(partial.path);
  await forgetClaim(record);
  if (madeDirectory) await removeDirectory(dirname(path));
  records.remove(id);
}

/** Nobody's failure: it is gone, or somebody else has a file there, or uses it as a mount point, or has put a link in its place. */
const LEFT = new Set(['ENOENT', 'ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR', 'ELOOP']);

/** It alone: an upload makes no others, and whoever may write to the pool may have put a link in its place. */
async function removeDirectory(path: string): Promise<void> {
  try {
    await rmdir(path);
    await syncDirectoryOf(path);
  } catch (error) {
    if (!LEFT.has(errnoOf(error) ?? '')) throw fromIoError(error, 'removing', path);
  }
}

/** The name under which the hidden file was made: a stop of the agent may have left it. @throws VirtkeepError io_failed */
export async function forgetClaim({ claim }: UploadRecord): Promise<void> {
  if (claim !== '') await removePath(claim);
}

/** Whether the file has its own name already. @throws VirtkeepError io_failed */
export async function isPublished({ path, partial }: UploadRecord): Promise<boolean> {
  const found = await fileMarkAt(path);
  const { made } = partial;
  return found !== null && made !== undefined && found.inode === made.inode && found.bornNs === made.bornNs;
}
