import { join } from 'node:path';
import type { DiskConfig } from '../domain-xml/index.ts';
import type { PoolRecord } from './record.ts';

/** The file or device of a disk, also of one that names a volume of a directory pool. */
export function pathOf(
  disk: DiskConfig,
  pools: readonly Pick<PoolRecord, 'name' | 'path'>[],
): string | undefined {
  if (disk.path !== undefined || !disk.volume) return disk.path;
  return pathOfVolume(disk.volume.pool, disk.volume.name, pools);
}

/** Where a volume of the pool of that name lies; undefined where the pool is not known. */
export function pathOfVolume(
  pool: string,
  volume: string,
  pools: readonly Pick<PoolRecord, 'name' | 'path'>[],
): string | undefined {
  const path = pools.find(({ name }) => name === pool)?.path;
  return path && join(path, volume);
}
