/** LUNs and other storage that a backup only records: which of them can be attached again on this node. */
import { constants } from 'node:fs';
import { open, realpath, stat } from 'node:fs/promises';
import { DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { type DiskConfig, type DomainConfig, parseDomain } from '../../domain-xml/index.ts';
import { isNoDomain } from '../../libvirt/errors.ts';

/**
 * Targets whose storage is present and unused by every domain of the node (spec 2.1 rule 4), and by the node itself: an
 * archive must not hand the host's own disks to a guest.
 */
export async function attachableDevices(libvirt: Libvirt, config: DomainConfig): Promise<Set<string>> {
  const candidates = config.disks.filter(isForeign);
  if (candidates.length === 0) return new Set();
  const used = await usedSources(libvirt);
  const found = new Set<string>();
  for (const disk of candidates) {
    if (!used.has(await storageOf(disk)) && (await isPresent(disk))) found.add(disk.targetDev);
  }
  return found;
}

function isForeign(disk: DiskConfig): boolean {
  if (disk.device === 'lun') return true;
  return disk.device === 'disk' && disk.type === 'network';
}

async function usedSources(libvirt: Libvirt): Promise<Set<string>> {
  const used = new Set<string>();
  for (const domain of await libvirt.domains()) {
    try {
      for (const disk of parseDomain(await domain.xml(DomainXml.INACTIVE)).disks)
        used.add(await storageOf(disk));
    } catch (error) {
      if (!isNoDomain(error)) throw error; // removed meanwhile
    }
  }
  return used;
}

/** What a disk stands on; a device has many names below /dev/disk, and they all mean the same. */
async function storageOf(disk: DiskConfig): Promise<string> {
  if (disk.path === undefined) return disk.source;
  return realpath(disk.path).catch(() => disk.source);
}

/** Network storage is asked by QEMU at the start; a device must be free for exclusive use (EBUSY: mounted, in a group). */
async function isPresent(disk: DiskConfig): Promise<boolean> {
  if (disk.type === 'network') return true;
  if (disk.type !== 'block' || disk.path === undefined) return false;
  try {
    if (!(await stat(disk.path)).isBlockDevice()) return false;
    const device = await open(disk.path, constants.O_RDONLY | constants.O_EXCL);
    await device.close();
    return true;
  } catch {
    return false;
  }
}
