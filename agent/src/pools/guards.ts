// The specification's limits of backups (sections 2.3 rule 7 and 8), as functions of plain records. Each returns the
// error to throw, or undefined; the text of the first also stands in the pool's record as the reason.
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { DiskConfig } from '../domain-xml/index.ts';
import { placeOf } from './place.ts';
import { isLvm, type PoolRecord } from './record.ts';

/** A pool whose files can be read at its path. */
export type ReadablePool = PoolRecord & { path: string };

const hasPath = (pool: PoolRecord): pool is ReadablePool => pool.hasDirectory && Boolean(pool.path);

/**
 * Why the files of a pool cannot be read now, or undefined when they can.
 * @param node the node's name, for the text
 */
function readRefusal(pool: PoolRecord, node: string): VirtkeepError | undefined {
  const names = { pool: pool.name, kind: pool.kind };
  if (!hasPath(pool)) return new VirtkeepError('pool_kind_unsupported', names);
  if (!pool.active) return new VirtkeepError('pool_not_active', { ...names, node });
  if (!pool.mounted) return new VirtkeepError('pool_not_mounted', { ...names, path: pool.path });
  return undefined;
}

/** @throws VirtkeepError pool_not_found, pool_kind_unsupported, pool_not_active, pool_not_mounted */
export function readablePool(pools: readonly PoolRecord[], poolId: string, node: string): ReadablePool {
  const pool = pools.find(candidate => candidate.id === poolId);
  if (!pool) throw new VirtkeepError('pool_not_found', { id: poolId });
  const refusal = readRefusal(pool, node);
  if (refusal) throw refusal;
  return pool as ReadablePool;
}

/**
 * Why a pool may not hold backups (nor anything else that is written), or undefined when it may: what stays so is said
 * before what may be over soon.
 * @param node the node's name, for the text
 */
export function backupTargetRefusal(pool: PoolRecord, node = 'this node'): VirtkeepError | undefined {
  const names = { pool: pool.name, kind: pool.kind };
  if (isLvm(pool.kind)) return new VirtkeepError('pool_kind_unsupported', names);
  if (pool.outside) return new VirtkeepError('pool_outside', names);
  if (pool.readonly && hasPath(pool)) return new VirtkeepError('pool_read_only', names);
  const refusal = readRefusal(pool, node);
  if (refusal || !pool.othersMayWrite?.refused) return refusal;
  return new VirtkeepError('pool_ownership', { pool: pool.name, reason: pool.othersMayWrite.how });
}

export interface BackupSource {
  /** Name or uuid of the domain, for the text. */
  domain: string;
  running: boolean;
  /** The domain has saved states of its own. */
  hasStates: boolean;
  /** A state would stay, so that the backup can be extended. */
  incremental: boolean;
  /** Names of datasets that hold image files of these disks, whatever their pools are. */
  datasets: readonly string[];
  /** UUIDs of mediated devices. */
  mdevs: readonly string[];
  /** The disks to be copied: without LUNs, drives, and excluded disks. */
  disks: readonly Pick<DiskConfig, 'type' | 'path' | 'volume' | 'source'>[];
}

/** Why a domain cannot be backed up as it is, or undefined. */
export function backupSourceRefusal(
  source: BackupSource,
  pools: readonly PoolRecord[],
): VirtkeepError | undefined {
  const { domain } = source;
  const places = source.disks.map(disk => placeOf(disk, pools));
  const lvm = places.find(place => isLvm(place.kind));
  if (lvm) return new VirtkeepError('pool_kind_unsupported', { kind: lvm.kind, pool: lvm.name });
  const zfs = places.find(place => place.kind === 'zfs')?.name ?? source.datasets[0];
  if (zfs !== undefined && source.incremental)
    return new VirtkeepError('zfs_incremental', { domain, pool: zfs });
  if (zfs !== undefined && source.hasStates)
    return new VirtkeepError('zfs_with_states', { domain, pool: zfs });
  if (source.running && source.mdevs.length > 0) return new VirtkeepError('mdev_running', { domain });
  return undefined;
}
