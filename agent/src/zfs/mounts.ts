import { isDatasetName } from './names.ts';

/** A mounted dataset, from /proc/self/mountinfo. */
export interface DatasetMount {
  dataset: string;
  /** Where it is mounted. */
  mountPoint: string;
  /** The directory of the dataset that is mounted there: "/" but for bind mounts. */
  root: string;
}

/** Type of a mount by the kernel's ZFS, and by zfs-fuse. */
const ZFS_TYPES = new Set(['zfs', 'fuse.zfs']);

interface Mount extends DatasetMount {
  type: string;
}

/**
 * The dataset that holds a path, or null when something else does. The last mount that covers the path counts: it hides
 * those before it.
 * @param mountInfo text of /proc/self/mountinfo
 * @param path absolute, without links
 */
export function mountOf(mountInfo: string, path: string): DatasetMount | null {
  let best: Mount | null = null;
  for (const mount of parseMounts(mountInfo)) {
    if (!covers(mount.mountPoint, path)) continue;
    if (!best || mount.mountPoint.length >= best.mountPoint.length) best = mount;
  }
  return best && ZFS_TYPES.has(best.type) && isDatasetName(best.dataset) ? best : null;
}

/** Where the whole of a dataset is mounted, or null. */
export function mountPointOf(mountInfo: string, dataset: string): string | null {
  const own = parseMounts(mountInfo).find(
    mount => ZFS_TYPES.has(mount.type) && mount.dataset === dataset && mount.root === '/',
  );
  return own?.mountPoint ?? null;
}

/** Whether any dataset is mounted. */
export function hasDatasets(mountInfo: string): boolean {
  return parseMounts(mountInfo).some(mount => ZFS_TYPES.has(mount.type));
}

function covers(mountPoint: string, path: string): boolean {
  return mountPoint === '/' || path === mountPoint || path.startsWith(`${mountPoint}/`);
}

/** Lines: id parent major:minor root mount-point options [fields…] - type source options (proc(5)). */
function parseMounts(mountInfo: string): Mount[] {
  return mountInfo.split('\n').flatMap(line => {
    const fields = line.split(' ');
    const separator = fields.indexOf('-', 6);
    if (separator < 0) return [];
    const [root, mountPoint, type, source] = [
      fields[3],
      fields[4],
      fields[separator + 1],
      fields[separator + 2],
    ];
    if (!root || !mountPoint || !type || source === undefined) return [];
    return [{ root: plainText(root), mountPoint: plainText(mountPoint), type, dataset: plainText(source) }];
  });
}

/** Blank, tab, newline and backslash stand there as octal numbers. */
function plainText(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_whole, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
}
