import { stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';

/** File systems that several nodes mount: `f_type` of statfs(2) → the product's word. */
const NETWORK_TYPES: Record<number, string> = {
  26985: 'nfs', 20859: 'cifs', 4283649346: 'cifs', 4266872130: 'cifs', 12805120: 'ceph', 18225520: 'gfs2',
  1952539503: 'ocfs2', 198183888: 'lustre', 16914839: '9p', 1397113167: 'afs',
}; // biome-ignore format: a table

export interface FsFacts {
  /** Word for a network file system; undefined for a local one. */
  network?: string | undefined;
  /** Bytes. */
  capacity: number;
  /** Bytes free without the blocks reserved for root: filling those harms the node. */
  available: number;
}

/** What the file system under a directory is and holds, exact at this moment. @throws VirtkeepError io_failed */
export async function fsFacts(path: string): Promise<FsFacts> {
  try {
    const facts = await statfs(path);
    const capacity = facts.blocks * facts.bsize;
    return { network: NETWORK_TYPES[facts.type >>> 0], capacity, available: facts.bavail * facts.bsize };
  } catch (error) {
    throw fromIoError(error, 'reading', path);
  }
}

/** Whether other nodes can reach the file: a local file system belongs to this node alone. @throws VirtkeepError io_failed */
export async function isShared(path: string, pool: { shared: boolean } | undefined): Promise<boolean> {
  return pool?.shared === true || (await fsFacts(dirname(path))).network !== undefined;
}

/**
 * Refuses when a pool's file system has less than this free, right now.
 * @throws VirtkeepError pool_no_space, io_failed
 */
export async function requireSpace(
  pool: { name: string; path?: string },
  neededBytes: number,
): Promise<void> {
  const { available } = await fsFacts(pool.path ?? '/');
  if (available >= neededBytes) return;
  throw new VirtkeepError('pool_no_space', {
    pool: pool.name,
    free_bytes: available,
    needed_bytes: Math.ceil(neededBytes),
  });
}

/** True for a directory that exists. */
export async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    found => found.isDirectory(),
    error => {
      if (['ENOENT', 'ENOTDIR', 'ESTALE', 'EIO', 'EHOSTDOWN', 'ENOTCONN'].includes(errnoOf(error) ?? ''))
        return false;
      throw fromIoError(error, 'reading', path);
    },
  );
}
