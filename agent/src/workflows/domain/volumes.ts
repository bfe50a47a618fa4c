import { stat } from 'node:fs/promises';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { cleanPath } from '@virtkeep/shared/clean-path';
import type { DiskConfig } from '../../domain-xml/index.ts';

/** Disks that are given as volumes of libvirt's pools, as the files or devices that they are; others as they stand. */
export async function resolveVolumes(libvirt: Libvirt, disks: DiskConfig[]): Promise<DiskConfig[]> {
  const resolved: DiskConfig[] = [];
  for (const disk of disks) {
    const volume = disk.type === 'volume' ? disk.volume : undefined;
    const pool = volume && (await libvirt.poolByName(volume.pool).catch(() => undefined));
    const path = pool && (await (await pool.findVolume(volume.name))?.path());
    if (path === undefined) resolved.push(disk);
    else {
      const type = (await stat(path)).isBlockDevice() ? 'block' : 'file';
      resolved.push({ ...disk, type, path: cleanPath(path) });
    }
  }
  return resolved;
}
