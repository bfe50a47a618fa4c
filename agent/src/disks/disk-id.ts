import { basename, relative } from 'node:path';
import { uuidIn, uuidV5 } from '@virtkeep/shared/ids';

/** Namespace of ids of disks that no pool holds (made once for this purpose). */
const NO_POOL = '5b0c8a52-8f0e-4ac6-9a52-6f2d0c5f3e11';

/**
 * A disk's id: the uuid in its file name, else uuid v5 of its pool's uuid and its path inside the pool, so that it is the
 * same on every node that shares the pool (DESIGN, Data pools).
 * @param path the first layer of the disk; later layers (saved states) belong to the same disk.
 */
export function diskId(path: string, pool?: { id: string; path?: string }): string {
  const inName = uuidIn(basename(path));
  if (inName) return inName;
  if (!pool?.path) return uuidV5(pool?.id ?? NO_POOL, path);
  return uuidV5(pool.id, relative(pool.path, path));
}
