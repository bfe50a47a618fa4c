/** Where an ISO image lies, or may be put. */
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import {
  BACKUPS_DIR,
  backupTargetRefusal,
  type PoolRecord,
  type ReadablePool,
  readablePool,
  resolveInPool,
} from '../pools/index.ts';
import { isIsoName, lookInPool } from './image-list.ts';

export interface IsoPlace {
  pool: ReadablePool;
  filename: string;
  path: string;
}

interface ImageRequest {
  poolId: string;
  filename: string;
}

/** Longest file name: libvirt and tools show it in one line, and every file system takes it. */
const MAX_NAME_BYTES = 200;

/** An image that is there. @throws VirtkeepError as `readablePool`; iso_not_found, path_outside_pool, io_failed */
export async function findIso(
  pools: readonly PoolRecord[],
  { poolId, filename }: ImageRequest,
  node: string,
): Promise<IsoPlace> {
  const pool = readablePool(pools, poolId, node);
  const absent = new VirtkeepError('iso_not_found', { id: filename });
  const steps = filename.split('/');
  if (!isIsoName(filename) || steps[0] === BACKUPS_DIR || steps.some(step => step.startsWith('.')))
    throw absent;
  const path = await resolveInPool(pool, filename);
  try {
    if ((await lookInPool(path)).isFile()) return { pool, filename, path };
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw fromIoError(error, 'looking for', path);
  }
  throw absent;
}

/**
 * Where a new image goes: the pool's own directory, which must be one that is written to.
 * @throws VirtkeepError as `readablePool`; invalid_name, pool_read_only, pool_outside, pool_ownership, path_outside_pool
 */
export async function newIsoPlace(
  pools: readonly PoolRecord[],
  { poolId, filename }: ImageRequest,
  node: string,
): Promise<IsoPlace> {
  const pool = readablePool(pools, poolId, node);
  const refusal = backupTargetRefusal(pool, node);
  if (refusal) throw refusal;
  const reason = nameFault(filename);
  if (reason !== undefined)
    throw new VirtkeepError('invalid_name', { value: filename.slice(0, 300), reason, field: 'filename' });
  return { pool, filename, path: await resolveInPool(pool, filename) };
}

function nameFault(name: string): string | undefined {
  if (!isIsoName(name)) return 'it does not end with .iso';
  if (Buffer.byteLength(name) > MAX_NAME_BYTES) return `it is longer than ${MAX_NAME_BYTES} bytes`;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
  if (/[\u0000-\u001f\u007f/\\]/.test(name)) return 'it holds a slash or a control character';
  return name.startsWith('.') || name.startsWith('-') ? 'it begins with a dot or a hyphen' : undefined;
}
