/**
 * What scans have found, for whoever asks for it apart from their results. Of a pool that is the last one: its caller asks at once, and whoever
 * comes too late has the pool scanned anew.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { BackupFile, ScannedFilesResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { FoundFiles } from '../pools/index.ts';

/** Archives with a large manifest make a message of some MiB of so many. */
const FILES_AT_ONCE = 100;

interface Found {
  operationId: string;
  files: FoundFiles;
}

export class ScannedFiles {
  readonly #byPool = new Map<string, Found>();

  keep(poolId: string, found: Found): void {
    this.#byPool.set(poolId, found);
  }

  /**
   * In pieces; when the last one was taken nothing is kept any more.
   * @throws VirtkeepError operation_not_found
   */
  async *tell(operationId: string): AsyncGenerator<ScannedFilesResponse> {
    const kept = [...this.#byPool].find(([, found]) => found.operationId === operationId);
    if (!kept) throw new VirtkeepError('operation_not_found', { id: operationId });
    const [poolId, found] = kept;
    let files: BackupFile[] = [];
    for (const file of found.files) {
      files.push(file);
      if (files.length < FILES_AT_ONCE) continue;
      yield { files };
      files = [];
    }
    if (files.length > 0) yield { files };
    if (this.#byPool.get(poolId) === found) this.#byPool.delete(poolId);
  }
}
