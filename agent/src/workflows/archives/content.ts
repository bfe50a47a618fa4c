import { hasKey } from '@virtkeep/shared/errors';
import { type Holding, type ManifestState, openArchive } from '../../archive/index.ts';
import type { ConvertedArchive } from '../effect.ts';

/** What an archive holds. */
export interface ArchiveContent extends ConvertedArchive {
  manifestSha256: string;
  points: readonly ManifestState[];
}

/** Null for what is no whole archive of this product. @throws VirtkeepError io_failed, canceled, file_busy */
export async function contentOf(
  path: string,
  holding: Holding,
  signal: AbortSignal,
): Promise<ArchiveContent | null> {
  try {
    const archive = await openArchive(path, signal, { holding });
    await archive.close();
    const { manifest, seal, sizeBytes } = archive;
    if (manifest === null || seal === null) return null;
    const { backupId, states: points } = manifest;
    return { backupId, states: points.length, sizeBytes, manifestSha256: seal.textSha256, points };
  } catch (error) {
    if (hasKey(error, 'archive_damaged', 'archive_unsupported')) return null;
    throw error;
  }
}
