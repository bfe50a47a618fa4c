/**
 * Turns a backup file into its other form, plain or compressed, in place or in another pool (specification 2.3).
 *
 * check → copy → publish → remove. The new file is complete, durable and compared with the old one's hashes and
 * checksums before it gets its name; the old one goes only when the operation is committed, or stays as it is. Whatever stops it
 * before that leaves the old file alone and no other; whatever stops it later is finished by the next agent.
 */
import { dirname, join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { RecompressBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { uuidV5 } from '@virtkeep/shared/ids';
import {
  type ConvertOptions,
  type FileLock,
  type FinishedArchive,
  lockFile,
  putTailsBack,
} from '../../archive/index.ts';
import { markSources } from '../../disks/index.ts';
import {
  BACKUPS_DIR,
  backupTargetRefusal,
  isCompressedName,
  type PoolRecord,
  requireSpace,
} from '../../pools/index.ts';
import { backupFileOf } from '../archives/backup-file.ts';
import {
  COMPRESSED_SHARE,
  type Conversion,
  closeConversion,
  declareRemoval,
  openConversion,
  type Removal,
  refuseChanged,
  writeConversion,
} from '../archives/conversion.ts';
import type { FoundFile } from '../archives/find-file.ts';
import { refuseHalfExtended } from '../archives/half-extended.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { requireStillTarget } from '../target-pool.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const RECOMPRESS_STEPS = ['check', 'copy', 'publish', 'remove'] as const;

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
  { source, keepsSource = false }: { source: FoundFile; keepsSource?: boolean },
  pools: PoolRecord[],
  nodeName: string,
): RecompressPlan {
  const compressed = isCompressedName(source.filename);
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
  // what stays as it is cannot be put right first
  if (keepsSource) await refuseHalfExtended(source.path, lock, context.signal);
  else await putTailsBack(source.path, lock, context.signal);
  const mark = await markSources([source.path]);
  const { size: sizeBytes } = await lock.handle.stat();
  try {
    const { converter } = await context.step('check', async () => {
      draft.work = await check(dependencies, request, plan, context);
      return draft.work;
    });
    await context.step('copy', () => writeConversion(context, converter, converter.states));
    const finished = await context.step('publish', () => converter.publish());
    await refuseChanged(lock, mark);
    const former = { path: source.path, sizeBytes, converter };
    if (!keepsSource) removal = await declareRemoval(context, former, finished.path);
    const file = fileOf(finished, target, keepsSource);
    context.commit({ $case: keepsSource ? 'recompressCopy' : 'recompress', value: { file } });
  } finally {
    if (draft.work) await closeConversion(draft.work);
  }
  await draft.work!.name.free();
  dependencies.filesChanged(target.id);
  if (removal === undefined) return;
  const { remove } = removal;
  await context.step('remove', () => remove(context, lock));
  dependencies.filesChanged(source.pool.id);
}

/** Opens the old file, reserves the new one's name and asks for the space. */
async function check(
  dependencies: WorkflowDependencies,
  request: RecompressBackupRequest,
  { source, target, directory, lock }: LockedPlan,
  context: OperationContext,
): Promise<Conversion> {
  await requireStillTarget(dependencies, target, context.signal);
  const { compress, compressionLevel: level, sign } = request;
  const form = { compress, level, sign: sign ? adopting(dependencies) : undefined };
  const work = await openConversion(dependencies, context, { path: source.path, lock, directory, ...form });
  try {
    await requireSpace(target, work.converter.allocatedBytes * (compress ? COMPRESSED_SHARE : 1));
    return work;
  } catch (error) {
    await closeConversion(work);
    throw error;
  }
}

/** An archive that somebody vouches for stays what it is. */
function adopting({ judge, sign }: WorkflowDependencies): ConvertOptions['sign'] {
  return archive => (judge(archive).trust === 'foreign' ? sign : undefined);
}

function fileOf(
  { path, sizeBytes, manifest }: FinishedArchive,
  pool: PoolRecord,
  isCopy: boolean,
): BackupFile {
  const filename = path.slice(join(pool.path!, BACKUPS_DIR).length + 1);
  const file = backupFileOf({ poolId: pool.id, filename, path, sizeBytes }, manifest);
  return isCopy ? { ...file, id: uuidV5(pool.id, filename) } : file;
}
