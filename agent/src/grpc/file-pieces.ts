import type { BackupFile, ListFilesResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { MiB } from '@virtkeep/shared/units';

const MOST_FILES = 100;
/** A manifest may have 16 MiB, and whoever reads takes 128 at once. */
const MOST_CHARACTERS = 4 * MiB;

/** Files as they are streamed, however many there are, and however large their manifests. */
export function* filePieces(all: Iterable<BackupFile>): Generator<ListFilesResponse> {
  let files: BackupFile[] = [];
  let characters = 0;
  for (const file of all) {
    files.push(file);
    characters += file.manifestJson.length;
    if (files.length < MOST_FILES && characters < MOST_CHARACTERS) continue;
    yield { files };
    files = [];
    characters = 0;
  }
  if (files.length > 0) yield { files };
}
