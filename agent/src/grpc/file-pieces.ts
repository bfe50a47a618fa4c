import type { BackupFile, ListFilesResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';

/** Archives with a large manifest make a message of some MiB of so many. */
const FILES_AT_ONCE = 100;

/** Files as they are streamed, however many there are. */
export function* filePieces(all: Iterable<BackupFile>): Generator<ListFilesResponse> {
  let files: BackupFile[] = [];
  for (const file of all) {
    files.push(file);
    if (files.length < FILES_AT_ONCE) continue;
    yield { files };
    files = [];
  }
  if (files.length > 0) yield { files };
}
