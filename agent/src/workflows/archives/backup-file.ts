/** What a manifest says about its file, in the words of the gRPC contract. */

import { basename } from 'node:path';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { uuidV5 } from '@virtkeep/shared/ids';
import { type FinishedArchive, isHashed, leftOutOf, type Manifest, whyGrown } from '../../archive/index.ts';
import { type ArchiveSummary, isCompressedName } from '../../pools/index.ts';
import { isUserState } from '../../snapshots/index.ts';

/** Above it a list of archives and the result of an increment do not carry the manifest, but only whoever shows it. */
const LISTED_MEMBERS = 250;

/** What the inventory tells of a manifest. */
export function summaryOf(manifest: Manifest): ArchiveSummary {
  return {
    backupId: manifest.backupId,
    domainId: manifest.vm.uuid,
    domainName: manifest.vm.name,
    created: new Date(manifest.created),
    hashed: isHashed(manifest),
    states: manifest.states.map(state => ({
      number: state.number,
      name: state.name ?? String(state.number),
      created: new Date(state.created),
      memory: state.memoryMember !== null,
      consistency: state.consistency,
      excludedDisks: leftOutOf(manifest, state),
    })),
    canBeIncremental: manifest.incremental,
    requiredStates: requiredStates(manifest),
    fallbackReason: manifest.fallbackReason ?? '',
    templateId: manifest.template?.domainId ?? '',
    isTemplate: manifest.isTemplate,
    manifestJson: manifest.members.length > LISTED_MEMBERS ? '' : JSON.stringify(manifest),
    grown: whyGrown(manifest) ?? '',
  };
}

/**
 * The saved states a VM must still have so that the archive can be extended: the archive's own last one first, then those
 * that were on the VM when it was made (specification 3.2: any deletion ends it), without those of increments: they may go.
 */
function requiredStates(manifest: Manifest): string[] {
  const own = manifest.states.at(-1)!.name;
  if (!manifest.incremental || own === null) return [];
  return [...new Set([own, ...manifest.snapshots.filter(isUserState).map(({ name }) => name)])];
}

/** The record of an archive: `filename` is its path inside the pool's `backups/`. */
export function backupFileOf(
  file: { poolId: string; filename: string; path: string; sizeBytes: number },
  manifest: Manifest,
): BackupFile {
  const { backupId, ...summary } = summaryOf(manifest);
  return {
    id: backupId,
    archiveId: backupId,
    poolId: file.poolId,
    filename: file.filename,
    path: file.path,
    size: BigInt(file.sizeBytes),
    type: 'tar',
    compressed: isCompressedName(file.filename),
    damage: '',
    image: undefined,
    ...summary,
  };
}

/**
 * What the inventory tells of an archive that is read without a manifest of its own: it is a backup like others, but no copy of any, and
 * is not extended.
 */
export const foreignSummaryOf = (manifest: Manifest): ArchiveSummary => ({
  ...summaryOf(manifest),
  backupId: '',
  canBeIncremental: false,
  requiredStates: [],
});

/** As `backupFileOf`, of such an archive. */
export function foreignFileOf(
  file: { poolId: string; filename: string; path: string; sizeBytes: number },
  manifest: Manifest,
): BackupFile {
  const { backupId: archiveId, ...summary } = foreignSummaryOf(manifest);
  const id = uuidV5(file.poolId, file.filename);
  return { ...backupFileOf(file, manifest), ...summary, id, archiveId };
}

/** The same of what was just written. `filename` is needed for a file in a folder of `backups/`. */
export function finishedFileOf(
  finished: FinishedArchive,
  pool: { id: string },
  filename = basename(finished.path),
): BackupFile {
  const { path, sizeBytes, manifest } = finished;
  return backupFileOf({ poolId: pool.id, filename, path, sizeBytes }, manifest);
}
