/**
 * Turns a backup file into its other form, plain or compressed, in place or in another pool (specification 2.3).
 *
 * check → copy → publish → remove. The new file is complete, durable and compared with the old one's hashes and
 * checksums before it gets its name; the old one goes only when the operation is committed, or stays as it is. Whatever stops it
 * before that leaves the old file alone and no other; whatever stops it later is finished by the next agent.
 */
import { basename, dirname, join } from 'node:path';
import { mkdir } from '@virtkeep/shared/beneath';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import type { RecompressBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { uuidV5 } from '@virtkeep/shared/ids';
import {
  ArchiveConverter,
  type ConvertOptions,
  type FileLock,
  type FinishedArchive,
  hasTailToPutBack,
  lockFile,
  putTailsBack,
  sha256PathOf,
} from '../../archive/index.ts';
import { changedSource, markSources, type SourceMark } from '../../disks/index.ts';
import { fileMarkAt } from '../../images/index.ts';
import { BACKUPS_DIR, backupTargetRefusal, type PoolRecord, requireSpace } from '../../pools/index.ts';
import { backupFileOf } from '../archives/backup-file.ts';
import { removeReplaced } from '../archives/remains.ts';
import { declareArchive, type ReservedName, reserveArchiveName } from '../archives/reserved-name.ts';
import type { FoundFile } from '../archives/source.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import type { Effect, EffectHandle } from '../effect.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const RECOMPRESS_STEPS = ['check', 'copy', 'publish', 'remove'] as const;

/** Compressed archives of disks are hardly larger than half of their data; one that is ends with `disk_full`. */
const COMPRESSED_SHARE = 0.5;
const ENDING = /\.tar(\.zst)?$/i;

export interface RecompressPlan {
  source: FoundFile;
  target: PoolRecord;
  /** Directory of the new file, below the target's `backups/`. */
  directory: string;
  /** The old file stays; nothing is written where it lies. */
  keepsSource: boolean;
}

/**
 * What is to be converted into what; looks at nothing but the pools and the name.
 * @param keepsSource it may then lie on a read-only or outside pool (specification 2.3, rule 7)
 * @throws VirtkeepError compression_same, pool_not_found, and the refusals of pools
 */
export function planRecompress(
  request: RecompressBackupRequest,
  source: FoundFile,
  pools: PoolRecord[],
  nodeName: string,
  keepsSource = false,
): RecompressPlan {
  const compressed = source.filename.toLowerCase().endsWith('.zst');
  if (compressed === request.compress) {
    const format = compressed ? 'compressed' : 'plain';
    throw new VirtkeepError('compression_same', { file: source.filename, format });
  }
  const target =
    request.poolId === '' ? source.pool : pools.find(candidate => candidate.id === request.poolId);
  if (!target) throw new VirtkeepError('pool_not_found', { id: request.poolId });
  for (const pool of keepsSource ? [target] : [source.pool, target]) {
    const refusal = backupTargetRefusal(pool, nodeName);
    if (refusal) throw refusal;
  }
  const inPlace = target.id === source.pool.id;
  const directory = inPlace ? dirname(source.path) : join(target.path!, BACKUPS_DIR);
  return { source, target, directory, keepsSource };
}

/** The workflow: the archive in the other form, then the old one goes. Cancelling is possible until it does. */
export function recompressWorkflow(
  dependencies: WorkflowDependencies,
  request: RecompressBackupRequest,
  plan: RecompressPlan,
): Workflow {
  return async context => {
    const lock = await lockFile(plan.source.path, plan.keepsSource ? 'shared' : 'exclusive');
    try {
      await recompress(dependencies, request, { ...plan, lock }, context);
    } finally {
      await lock.release();
    }
  };
}

interface Conversion {
  converter: ArchiveConverter;
  name: ReservedName;
}

/** Nobody else has the old file until it is gone. */
type LockedPlan = RecompressPlan & { lock: FileLock };

async function recompress(
  dependencies: WorkflowDependencies,
  request: RecompressBackupRequest,
  plan: LockedPlan,
  context: OperationContext,
): Promise<void> {
  const { source, target, lock, keepsSource } = plan;
  const draft: { work: Conversion | undefined } = { work: undefined };
  let removal: Removal | undefined;
  // an increment that its node left half on the disk must not be taken over as whole
  if (keepsSource) await refuseHalfExtended(source.path, lock, context.signal);
  else await putTailsBack(source.path, lock, context.signal);
  const mark = await markSources([source.path]);
  const { size: sizeBytes } = await lock.handle.stat();
  try {
    const { converter } = await context.step('check', async () => {
      draft.work = await check(dependencies, request, plan, context);
      return draft.work;
    });
    await context.step('copy', () => copy(converter, context));
    const finished = await context.step('publish', () => converter.publish());
    await refuseChanged(lock, mark);
    if (!keepsSource)
      removal = await declareRemoval(context, source.path, finished.path, converter, sizeBytes);
    context.commit({ file: recordOf(finished, target, keepsSource) });
  } finally {
    // a name that is still held cannot be given free
    await draft.work?.converter.abort().finally(() => draft.work?.name.close());
  }
  await draft.work!.name.free();
  dependencies.filesChanged(target.id);
  if (removal === undefined) return;
  const { replaced, handle } = removal;
  await context.step('remove', async () => {
    const { signal } = context;
    await removeReplaced(replaced, { signal, lock, warn: text => context.warn(text) });
    handle.keep();
  });
  dependencies.filesChanged(source.pool.id);
}

interface Removal {
  replaced: Extract<Effect, { type: 'replaced_archive' }>;
  handle: EffectHandle;
}

async function declareRemoval(
  context: OperationContext,
  path: string,
  by: string,
  { backupId, states }: ArchiveConverter,
  sizeBytes: number,
): Promise<Removal> {
  const hashFile = await fileMarkAt(sha256PathOf(path));
  const was = { backupId, states, sizeBytes, ...(hashFile && { hashFile }) };
  const replaced = { type: 'replaced_archive', path, by, was } as const;
  return { replaced, handle: context.effects.begin(replaced, 'success') };
}

/** What stays as it is cannot be put right first. @throws VirtkeepError archive_damaged */
async function refuseHalfExtended(path: string, lock: FileLock, signal: AbortSignal): Promise<void> {
  if (!(await hasTailToPutBack(path, lock, signal))) return;
  const reason =
    'an increment of it was cut off, and where it lies nothing may be written; extend it once, or convert it in its place';
  throw new VirtkeepError('archive_damaged', { path, reason });
}

/** A lock that was lost is taken anew: who had it meanwhile may have extended the archive, or put another in its place. */
async function refuseChanged(lock: FileLock, mark: SourceMark[]): Promise<void> {
  await lock.confirm();
  const path = await changedSource(mark);
  if (path !== undefined) {
    const reason = 'somebody else wrote to it while it was converted';
    throw new VirtkeepError('archive_damaged', { path, reason });
  }
}

/** Opens the old file, reserves the new one's name and asks for the space. */
async function check(
  dependencies: WorkflowDependencies,
  request: RecompressBackupRequest,
  { source, target, directory, lock }: LockedPlan,
  context: OperationContext,
): Promise<Conversion> {
  const { compress, compressionLevel, sign } = request;
  const stem = basename(source.path).replace(ENDING, '');
  const ending = compress ? '.tar.zst' : '.tar';
  const name = await reserveArchiveName(context, await made(directory), stem, ending);
  try {
    const converter = await ArchiveConverter.open({
      from: source.path,
      lock,
      path: name.path,
      compression: compress ? (compressionLevel === 0 ? {} : { level: compressionLevel }) : null,
      sign: sign ? adopting(dependencies) : undefined,
      signal: context.signal,
      onProgress: bytes => context.progress.done(bytes),
      ...(dependencies.compressionWorkers !== undefined && { workers: dependencies.compressionWorkers }),
    });
    await requireSpace(target, converter.allocatedBytes * (compress ? COMPRESSED_SHARE : 1)).catch(
      async error => {
        await converter.abort();
        throw error;
      },
    );
    return { converter, name };
  } catch (error) {
    await name.close();
    throw error;
  }
}

/** An archive that somebody vouches for stays what it is. */
function adopting({ judge, sign }: WorkflowDependencies): ConvertOptions['sign'] {
  return archive => (judge(archive).trust === 'foreign' ? sign : undefined);
}

async function made(directory: string): Promise<string> {
  try {
    await mkdir(directory, { recursive: true, mode: 0o755 });
    return directory;
  } catch (error) {
    throw fromIoError(error, 'making', directory);
  }
}

async function copy(converter: ArchiveConverter, context: OperationContext): Promise<void> {
  const { backupId, path, states } = converter;
  declareArchive(context, path, { backupId, states });
  context.progress.total(converter.sizeBytes);
  await converter.write();
}

function recordOf(
  { path, sizeBytes, manifest }: FinishedArchive,
  pool: PoolRecord,
  isCopy: boolean,
): unknown {
  const filename = path.slice(join(pool.path!, BACKUPS_DIR).length + 1);
  const file = backupFileOf({ poolId: pool.id, filename, path, sizeBytes }, manifest);
  return BackupFile.toJSON(isCopy ? { ...file, id: uuidV5(pool.id, filename) } : file);
}
