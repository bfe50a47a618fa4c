import { dirname } from 'node:path';
import { uuidV5 } from '@virtkeep/shared/ids';
import { poolOfPath } from './place.ts';
import type { PoolRecord } from './record.ts';

/** More directories than that are a mistake (a domain per directory, say); the rest is shown without a pool. */
const MAX_OUTSIDE_POOLS = 1_000;

/**
 * The directories of disks and images that no pool holds, as pools that are never written to. Their ids come from node and
 * directory: the same directory on two nodes is two pools.
 * @param paths absolute paths of files (not devices)
 */
export function outsidePools(
  paths: Iterable<string>,
  pools: readonly PoolRecord[],
  nodeId: string,
): PoolRecord[] {
  const directories = new Set<string>();
  for (const path of paths) {
    if (!path.startsWith('/') || path.startsWith('/dev/') || poolOfPath(path, pools)) continue;
    if (directories.size < MAX_OUTSIDE_POOLS) directories.add(dirname(path));
  }
  return [...directories].sort().map(path => ({
    id: uuidV5(nodeId, `outside:${path}`),
    name: path,
    kind: 'outside',
    path,
    hasDirectory: true,
    active: true,
    mounted: true,
    capacity: 0,
    allocation: 0,
    available: 0,
    readonly: true,
    outside: true,
    shared: false,
    description: '',
    isBase: false,
  }));
}
