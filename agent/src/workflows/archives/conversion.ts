/**
 * An archive written in its other form, beside it: what a conversion and an increment of an archive that is to have another form share.
 *
 * openConversion → writeConversion → (published) → refuseChanged → declareRemoval → commit → remove. Until the commit the old file is
 * as it was and locked; what is left of the new one goes with the effects that are declared here.
 */
import { basename } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ArchiveConverter, type ConvertOptions, type FileLock, sha256PathOf } from '../../archive/index.ts';
import { changedSource, type SourceMark } from '../../disks/index.ts';
import { fileMarkAt } from '../../images/index.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { removeReplaced } from './remains.ts';
import { declareArchive, endingOf, type ReservedName, reserveArchiveName } from './reserved-name.ts';

/** Compressed archives of disks are hardly larger than half of their data; one that is ends with `disk_full`. */
export const COMPRESSED_SHARE = 0.5;
const ENDING = /\.tar(\.zst)?$/i;

export interface Conversion {
  converter: ArchiveConverter;
  name: ReservedName;
}

interface ConversionOptions extends Pick<ConvertOptions, 'sign' | 'hash'> {
  path: string;
  /** Of the old file. */
  lock: FileLock;
  /** Of the new one. */
  directory: string;
  compress: boolean;
  /** zstd level; 0 means the default. */
  level: number;
}

/**
 * Opens the old file and reserves the new one's name; the caller closes both.
 * @throws VirtkeepError archive_damaged, archive_unsupported, archive_too_large, invalid_name, file_exists, io_failed,
 *   disk_full
 */
export async function openConversion(
  { compressionWorkers }: Pick<WorkflowDependencies, 'compressionWorkers'>,
  context: OperationContext,
  { path, lock, directory, compress, level, sign, hash = false }: ConversionOptions,
): Promise<Conversion> {
  const name = await reserveArchiveName(context, directory, stemOf(path), endingOf(compress));
  try {
    const converter = await ArchiveConverter.open({
      ...{ from: path, lock, path: name.path, sign, hash },
      compression: compress ? (level === 0 ? {} : { level }) : null,
      signal: context.signal,
      onProgress: bytes => context.progress.done(bytes),
      ...(compressionWorkers !== undefined && { workers: compressionWorkers }),
    });
    return { converter, name };
  } catch (error) {
    await name.close();
    throw error;
  }
}

/** The name of an archive in its other form, while that is free. */
export const otherNameOf = (path: string, compress: boolean): string =>
  `${stemOf(path)}${endingOf(compress)}`;

const stemOf = (path: string): string => basename(path).replace(ENDING, '');

/** Writes the new file. @param states how many it is going to have when it is published */
export async function writeConversion(
  context: OperationContext,
  converter: ArchiveConverter,
  states: number,
): Promise<void> {
  const { backupId, path } = converter;
  declareArchive(context, path, { backupId, states });
  context.progress.total(converter.sizeBytes);
  await converter.write();
}

/** Removes what was not published and lets go of the name: one that is still held cannot be given free. Harmless when repeated. */
export function closeConversion({ converter, name }: Conversion): Promise<void> {
  return converter.abort().finally(() => name.close());
}

/** A lock that was lost is taken anew: who had it meanwhile may have extended the archive, or put another in its place. */
export async function refuseChanged(lock: FileLock, mark: SourceMark[]): Promise<void> {
  await lock.confirm();
  const path = await changedSource(mark);
  if (path !== undefined) {
    const reason = 'somebody else wrote to it while it was converted';
    throw new VirtkeepError('archive_damaged', { path, reason });
  }
}

/** What is to happen to the old file once all is committed; after a crash the effect does it. */
export interface Removal {
  /** @param lock of the old file, exclusive @throws VirtkeepError file_busy, io_failed, canceled: the effect does it later */
  remove(context: OperationContext, lock: FileLock): Promise<void>;
}

interface ReplacedFile {
  path: string;
  sizeBytes: number;
  /** What it held. */
  converter: Pick<ArchiveConverter, 'backupId' | 'states'>;
}

/** Declares that the old file goes with the commit. Call it when the new one is published, and right before the commit. */
export async function declareRemoval(
  context: OperationContext,
  { path, sizeBytes, converter }: ReplacedFile,
  by: string,
): Promise<Removal> {
  const { backupId, states } = converter;
  const hashFile = await fileMarkAt(sha256PathOf(path));
  const was = { backupId, states, sizeBytes, ...(hashFile && { hashFile }) };
  const replaced = { type: 'replaced_archive', path, by, was } as const;
  const handle = context.effects.begin(replaced, 'success');
  return {
    remove: async ({ signal, warn }, lock) => {
      await removeReplaced(replaced, { signal, lock, warn });
      handle.keep();
    },
  };
}
