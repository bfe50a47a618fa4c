/** What the drives of a restored VM show, once all files are there. */
import { dependenceOf } from '../../disks/index.ts';
import type { DiskConfig } from '../../domain-xml/index.ts';
import type { RestorePlan } from './check.ts';

type Drives = Pick<RestorePlan, 'config' | 'placement' | 'trust'>;

/**
 * Looks at the image in each drive: one in another format than raw is shown in it only when its own header names no other file,
 * which QEMU would read for it.
 * @returns paths of the images that are qcow2
 * @throws VirtkeepError io_failed, not_a_file
 */
export async function judgeDrives(
  { config, placement, trust }: Drives,
  warn: (text: string) => void,
): Promise<Set<string>> {
  const written = new Set(placement.images.map(({ path }) => path));
  const proven = new Set<string>();
  for (const disk of config.disks) {
    const path = placement.drives.get(disk.targetDev) ?? null;
    if (path === null) continue;
    const { targetDev, device, readonly, format = 'raw' } = disk;
    const isMade = written.has(path);
    if (format !== 'raw') {
      const fault = isMade || trust === 'own' ? await imageFault(path, disk) : 'is not of this archive';
      if (fault === undefined) proven.add(path);
      else warn(`${targetDev}: the image ${path} ${fault}; the drive shows the bytes of the file itself.`);
    }
    if (device === 'floppy' && !readonly && !isMade)
      warn(`${targetDev}: the image ${path} is used where it is, and read-only: others may use it, too.`);
  }
  return proven;
}

async function imageFault(path: string, { format }: DiskConfig): Promise<string | undefined> {
  return format === 'qcow2' ? await dependenceOf(path) : `is a ${format} image`;
}
