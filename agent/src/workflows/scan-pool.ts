import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { Workflow } from './context.ts';

/**
 * Reads the backup files of a pool anew. Result: `{"files":[BackupFile as JSON,…]}`.
 * @param scan reads everything and returns the pool's files
 */
export function scanPool(scan: (signal: AbortSignal) => Promise<BackupFile[]>): Workflow {
  return async context => {
    const files = await context.step('scan', () => scan(context.signal));
    for (const file of files.filter(found => found.damage !== '')) {
      context.warn(`${file.filename}: ${file.damage}`);
    }
    context.commit({ files: files.map(file => BackupFile.toJSON(file)) });
  };
}
