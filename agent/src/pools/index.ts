/**
 * Data pools as plain records, the rules of what may be done with them, and the backup files in them. Knows neither
 * libvirt's connection nor archives: both are brought by the callers.
 */
export { BACKUPS_DIR } from '@virtkeep/shared/beneath';

export { backupTypeOf, isCompressedName, type Skipped } from './backup-dir.ts';
export {
  type ArchiveSummary,
  BackupFiles,
  type FoundFiles,
  plainFile,
  type ReadArchive,
} from './backup-files.ts';
export { basePoolId } from './base.ts';
export { buildPool, type PoolNumbers, withMarks } from './build.ts';
export { type FsFacts, fsFacts, isShared, requireSpace } from './fs-kind.ts';
export {
  type BackupSource,
  backupSourceRefusal,
  backupTargetRefusal,
  type ReadablePool,
  readablePool,
} from './guards.ts';
export { isThere, type KnownPlace, knownPlaces, rememberPlaces } from './known-places.ts';
export { MARKER, type MountFacts, probeMount } from './mount.ts';
export { isMountPoint, mountPointOf, ROOT_MOUNT } from './mount-table.ts';
export { outsidePools } from './outside.ts';
export { directoriesOf, otherWriters } from './ownership.ts';
export { keepsFiles, type PoolDefinition, parsePool, poolKind } from './parse-pool.ts';
export { PathGate } from './path-gate.ts';
export { type PoolPlace, placeOf, poolOfPath } from './place.ts';
export type { PoolRecord } from './record.ts';
export { isInside, resolveBackup, resolveInPool } from './resolve.ts';
export {
  chosenBase,
  type PoolMarks,
  poolMarks,
  type Settings,
  setChosenBase,
  setPoolMarks,
} from './settings.ts';
export { pathOf, pathOfVolume } from './volume-path.ts';
