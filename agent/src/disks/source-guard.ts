/** Proof that the files a backup reads did not change while it read them. */
import { open, readFile, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';

export interface SourceMark {
  path: string;
  /**
   * Size, time of the last change of the content, and inode: whatever writes changes one of them. Of a block device, whose times tell
   * nothing, what the kernel has counted of its writes.
   */
  mark: string;
}

/**
 * Marks the given files. A device whose writes are not counted is left out. What another node writes to one is not counted here.
 * @throws VirtkeepError io_failed
 */
export async function markSources(paths: string[]): Promise<SourceMark[]> {
  const marks: SourceMark[] = [];
  for (const path of new Set(paths)) {
    const mark = await markOf(path);
    if (mark !== null) marks.push({ path, mark });
  }
  return marks;
}

/** The first file that is not what it was, or undefined. */
export async function changedSource(marks: SourceMark[]): Promise<string | undefined> {
  for (const { path, mark } of marks) {
    if ((await markOf(path).catch(() => null)) !== mark) return path;
  }
  return undefined;
}

/**
 * Refuses a copy of files that were written to meanwhile: it is worth nothing.
 * @param domain its name
 * @param action what failed, and what to do: "cloned while its disks change; start the clone again"
 * @throws VirtkeepError power_state_conflict
 */
export async function refuseChangedSources(
  domain: string,
  marks: SourceMark[],
  action: string,
): Promise<void> {
  const changed = await changedSource(marks);
  if (changed === undefined) return;
  const state = `not what it was (${basename(changed)} was written to)`;
  throw new VirtkeepError('power_state_conflict', { domain, state, action });
}

async function markOf(path: string): Promise<string | null> {
  try {
    const found = await stat(path, { bigint: true });
    if (found.isBlockDevice()) return await writesOf(path, found.rdev);
    return `${found.dev}:${found.ino}:${found.size}:${found.mtimeNs}`;
  } catch (error) {
    throw fromIoError(error, 'looking at', path);
  }
}

/** How many sectors of a device were written and discarded since it is there; null when the kernel does not count them. */
async function writesOf(path: string, rdev: bigint): Promise<string | null> {
  const major = ((rdev >> 8n) & 0xfffn) | ((rdev >> 32n) & ~0xfffn);
  const minor = (rdev & 0xffn) | ((rdev >> 12n) & ~0xffn);
  const node = `/sys/dev/block/${major}:${minor}`;
  // a partition is counted by its disk's setting
  const setting = await readFile(`${node}/queue/iostats`, 'latin1').catch(() =>
    readFile(`${node}/../queue/iostats`, 'latin1').catch(() => '0'),
  );
  if (setting.trim() === '0') return null;
  // a write counts when the cache has let go of it
  const device = await open(path, 'r');
  await device.sync().finally(() => device.close());
  const counts = (await readFile(`${node}/stat`, 'latin1')).trim().split(/\s+/);
  // the kernel's Documentation/block/stat.rst; the number of writes counts flushes, too
  const [written, discarded] = [counts[6], counts[13]];
  return `device ${major}:${minor}:${written}:${discarded}`;
}
