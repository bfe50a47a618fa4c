import type { FoundFiles, Skipped } from '../../pools/index.ts';
import type { Workflow } from '../context.ts';

/** What a pool's `backups/` has: what was read, and what bears a backup's name and was not. */
export interface Scanned {
  files: FoundFiles;
  skipped: readonly Skipped[];
}

/**
 * Reads the backup files of a pool. Result: all of them, or only how many there are.
 * @param scan reads what has changed, or all
 * @param isApart who asks for it has the files told apart
 */
export function scanPool(scan: (signal: AbortSignal) => Promise<Scanned>, isApart: boolean): Workflow {
  return async context => {
    const { files, skipped } = await context.step('scan', () => scan(context.signal));
    for (const { filename, damage } of files.damaged) context.warn(`${filename}: ${damage}`);
    for (const { filename, reason } of skipped)
      context.warn(filename === '' ? reason : `${filename}: ${reason}`);
    context.commit(
      isApart
        ? { $case: 'scanApart', value: { count: files.count } }
        : { $case: 'scanPool', value: { files: [...files] } },
    );
  };
}
