/**
 * Whether a frozen file was written to since: by another node that has run the VM from it, or by whoever put it back by hand.
 * What an overlay holds then belongs to another content than the file has.
 */
import { open, stat } from 'node:fs/promises';
import { readLayers } from '../../disks/index.ts';

/** What is on its way to a disk when an overlay is put on it arrives a moment later. */
const ARRIVAL_MS = 30_000;

/** The mark that no file has: whatever one is, it was written to since. */
export const WRITTEN = '0:0:0';

/** Inode, size and time of the last change; undefined for a device, which has no such time. Opened, for NFS to look anew. */
export async function markOf(path: string): Promise<string | undefined> {
  const file = await open(path, 'r');
  try {
    const found = await file.stat({ bigint: true });
    return found.isFile() ? `${found.ino}:${found.size}:${found.mtimeNs}` : undefined;
  } finally {
    await file.close();
  }
}

/** The file that an overlay stands on, as it is now; undefined where there is none, or no mark of it. */
export async function markedBelow(overlay: string): Promise<{ path: string; mark: string } | undefined> {
  const below = (await readLayers(overlay, 'qcow2'))[1];
  const mark = below && (await markOf(below.path));
  return mark === undefined ? undefined : { path: below!.path, mark };
}

/**
 * Whether the file below an overlay was written to since. Without a mark of then the time at which the overlay was made
 * decides; a device, and a file system that does not keep that time, cannot tell. A time that went back is no write: a power
 * cut takes the last ones.
 */
export async function writtenSince(
  below: string,
  overlay: string,
  mark?: string,
): Promise<'same' | 'written' | undefined> {
  const now = await markOf(below);
  if (now === undefined) return undefined;
  if (mark !== undefined) return isNewer(now, mark) ? 'written' : 'same';
  const [{ mtimeMs }, { birthtimeMs }] = await Promise.all([stat(below), stat(overlay)]);
  if (birthtimeMs <= 0) return undefined;
  return mtimeMs > birthtimeMs + ARRIVAL_MS ? 'written' : 'same';
}

function isNewer(now: string, then: string): boolean {
  const [inode, , changedNs] = now.split(':');
  const [inodeThen, , changedNsThen] = then.split(':');
  return inode !== inodeThen || BigInt(changedNs!) > BigInt(changedNsThen!);
}
