import type { DiskConfig } from '../domain-xml/index.ts';
import type { PoolRecord } from './record.ts';

export interface DiskPlace {
  pool?: PoolRecord;
  /** Kind of the pool, or what the device path tells: "lvm", "zfs"; "" when nothing is known. */
  kind: string;
  /** Name of the pool, or the path, for people. */
  name: string;
}

type Placed = Pick<DiskConfig, 'type' | 'path' | 'volume' | 'source'>;

/** Directories of /dev that hold other things than volume groups. */
const NOT_A_GROUP = new Set([
  'disk',
  'block',
  'char',
  'bus',
  'shm',
  'pts',
  'mapper',
  'zvol',
  'input',
  'snd',
  'fd',
  'cdrom',
]);

/** As much of a pool as tells what lies in it. */
export type PoolPlace = Pick<PoolRecord, 'id' | 'name' | 'path' | 'outside'>;

/** The pool with the longest directory above a path. */
export function poolOfPath<Pool extends PoolPlace>(path: string, pools: readonly Pool[]): Pool | undefined {
  let best: Pool | undefined;
  for (const pool of pools) {
    if (!pool.path || !path.startsWith(pool.path.endsWith('/') ? pool.path : `${pool.path}/`)) continue;
    // the pool that was named by the administrator wins over an outside pool of the same directory
    if (!best?.path || pool.path.length > best.path.length || (best.outside && !pool.outside)) best = pool;
  }
  return best;
}

/** Where a disk lies, from its definition alone. */
export function placeOf(disk: Placed, pools: readonly PoolRecord[]): DiskPlace {
  const pool = disk.volume
    ? pools.find(candidate => candidate.name === disk.volume!.pool)
    : disk.path && poolOfPath(disk.path, pools);
  if (pool) return { pool, kind: pool.kind, name: pool.name };
  return { kind: deviceKind(disk.path ?? ''), name: disk.source };
}

/** LVM and zvol devices have telling paths; multipath maps (mpath…) are disks. */
function deviceKind(path: string): string {
  if (path.startsWith('/dev/zvol/')) return 'zfs';
  if (/^\/dev\/disk\/by-id\/dm-uuid-LVM-/.test(path)) return 'lvm';
  if (/^\/dev\/(dm-\d+$|mapper\/(?!mpath))/.test(path)) return 'lvm';
  const group = path.match(/^\/dev\/([^/]+)\/[^/]+$/)?.[1];
  return group && !NOT_A_GROUP.has(group) ? 'lvm' : '';
}
