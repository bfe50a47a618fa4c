/** Proof that the files a backup reads did not change while it read them. */
import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';

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
    return found.isBlockDevice() ? null : `${found.dev}:${found.ino}:${found.size}:${found.mtimeNs}`;
  } catch (error) {
    throw fromIoError(error, 'looking at', path);
  }
}
