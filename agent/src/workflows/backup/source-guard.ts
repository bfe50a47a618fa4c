/** Proof that the files a backup reads did not change while it read them. */
import { stat } from 'node:fs/promises';
import { fromIoError } from '@virtkeep/shared/errors';

export interface SourceMark {
  path: string;
  /** Size, time of the last change of the content, and inode: whatever writes changes one of them. */
  mark: string;
}

/**
 * Marks the given files. Block devices tell nothing by their times, and are left out: an off VM's device is guarded by
 * the VM's own state.
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

async function markOf(path: string): Promise<string | null> {
  try {
    const found = await stat(path, { bigint: true });
    return found.isBlockDevice() ? null : `${found.dev}:${found.ino}:${found.size}:${found.mtimeNs}`;
  } catch (error) {
    throw fromIoError(error, 'looking at', path);
  }
}
