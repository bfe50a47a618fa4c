/** Where the members go: a new archive under a partial name, or the end of one that is extended, or of its other form. */
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { rm } from '@virtkeep/shared/beneath';
import { reasonOf } from '@virtkeep/shared/errors';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { Logger } from '@virtkeep/shared/log';
import {
  type AppenderOptions,
  ArchiveAppender,
  ArchiveWriter,
  DEFAULT_LEVEL,
  type FinishedArchive,
  type FinishOptions,
  type JudgeArchive,
  publishWithHashes,
  removeTails,
  type SignManifest,
} from '../../archive/index.ts';
import type { JoinedLimits } from '../../bandwidth/limits.ts';
import { BACKUPS_DIR, type PoolPlace } from '../../pools/index.ts';
import { archiveStem } from '../archives/file-name.ts';
import {
  declareArchive,
  endingOf,
  type ReservedName,
  reserveArchiveName,
} from '../archives/reserved-name.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { type BaseArchive, tailPathOf } from './base.ts';
import type { BackupJob } from './job.ts';
import type { OtherForm, PreparedBase } from './prepare.ts';

export interface Destination {
  archive: ArchiveWriter | ArchiveAppender;
  /** Writes the end and gives the archive its name, when it has none yet. @throws VirtkeepError what writing can raise, file_exists */
  finish(options: FinishOptions): Promise<FinishedArchive>;
  /** To be called after the commit: what would undo the work goes. */
  committed(): Promise<void>;
  /** Stops what runs, undoes what was not finished, and lets go of the file or its name; harmless when repeated. */
  close(): Promise<void>;
}

/**
 * Declares the effect and opens the archive.
 * @throws VirtkeepError file_exists, archive_damaged, and what writing can raise
 */
export async function openDestination(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  { job, time, prepared }: { job: BackupJob; time: Date; prepared: PreparedBase },
): Promise<Destination> {
  const throttle = await joinLimits(dependencies, request, context);
  try {
    const destination = await opened(dependencies, request, context, { job, time, prepared, throttle });
    const close = () => destination.close().finally(() => throttle?.leave());
    return { ...destination, close };
  } catch (error) {
    throttle?.leave();
    throw error;
  }
}

/** What it reads by: limits that others share, and the waits of running VMs. @returns undefined: as fast as it can */
async function joinLimits(
  { bandwidth, latency, pools, log }: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
): Promise<JoinedLimits | undefined> {
  const limits = request.limits.map(({ key, bytesPerSecond }) => ({
    key,
    bytesPerSecond: Number(bytesPerSecond),
  }));
  const places = latency && request.latencyTargets.length > 0 ? await known(pools, context, log) : [];
  const targets = request.latencyTargets.flatMap(({ poolId, targetMs }) =>
    places.filter(({ id }) => id === poolId).map(pool => ({ pool, targetMs })),
  );
  const other = limits.length > 0 ? bandwidth?.join(limits) : undefined;
  if (!latency || targets.length === 0) return other;
  return latency.join({ targets, places, other, say: text => context.progress.message(text) });
}

/** A backup does not fail for want of what only slows it. */
async function known(
  pools: WorkflowDependencies['pools'],
  context: OperationContext,
  log: Logger,
): Promise<readonly PoolPlace[]> {
  try {
    return await pools(context.signal);
  } catch (error) {
    throwIfAborted(context.signal);
    log.warn('the data pools are not known now', { reason: reasonOf(error) });
    context.warn(
      'Where the data pools are could not be asked: this backup does not give way to VMs that wait for their disks.',
    );
    return [];
  }
}

interface Opening {
  job: BackupJob;
  time: Date;
  prepared: PreparedBase;
  throttle: JoinedLimits | undefined;
}

async function opened(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  { job, time, prepared, throttle }: Opening,
): Promise<Destination> {
  const level = request.compressionLevel || DEFAULT_LEVEL;
  const common = {
    ...(throttle && { throttle }),
    signal: context.signal,
    onProgress: (bytes: number) => context.progress.done(bytes),
    ...(dependencies.compressionWorkers && { workers: dependencies.compressionWorkers }),
  };
  const { sign } = dependencies;
  if (job.base) {
    const { hashes, form } = prepared;
    const options = {
      ...common,
      ...(hashes && { hash: true, hashes }),
      level,
      ...(sign && { signer: goOnSigning(dependencies.judge, sign, context, job.base) }),
    };
    return form ? extendedOtherForm(form, options) : extended(context, job.base, options);
  }
  const name = await reservedPath(job, context, time, request.compress);
  const { path } = name;
  const { backupId } = job;
  try {
    declareArchive(context, path, { backupId, states: 1 });
    const archive = await ArchiveWriter.create({
      ...common,
      path,
      backupId,
      compression: request.compress ? { level } : null,
      hash: request.hashSum,
      sign,
    });
    const close = () => archive.abort().finally(() => name.close());
    return { archive, finish: options => archive.finish(options), committed: () => name.free(), close };
  } catch (error) {
    await name.close();
    throw error;
  }
}

/**
 * What was not signed before does not become so by an increment, and no more what is another archive now than the one that the
 * increment was planned for; nor does what another node signed become this one's own.
 */
function goOnSigning(
  judge: JudgeArchive,
  sign: SignManifest,
  context: OperationContext,
  { filename, manifest: planned }: BaseArchive,
): AppenderOptions['signer'] {
  return archive => {
    const { trust, reason } = judge(archive);
    if (trust !== 'foreign' && isDeepStrictEqual(archive.manifest, planned))
      return { sign, sameSigner: trust === 'own' };
    const why = trust === 'foreign' ? reason : 'it was changed meanwhile';
    context.warn(`The archive ${filename} stays without a signature: ${why}.`);
    return undefined;
  };
}

async function extended(
  context: OperationContext,
  { path, lock }: BaseArchive,
  options: Omit<AppenderOptions, 'path' | 'lock'>,
): Promise<Destination> {
  const archive = await ArchiveAppender.open({ ...options, path, lock });
  const tailPath = tailPathOf(path, context.id);
  try {
    await removeTails(path);
    context.effects.begin({ type: 'file', path: tailPath }, 'success');
    context.effects.begin({ type: 'appended_archive', path, tailPath }, 'failure');
    await archive.begin(tailPath);
  } catch (error) {
    await archive.abort();
    throw error;
  }
  // at once, and not only with the operation's end, which may have states to merge first
  const committed = () => rm(tailPath, { force: true });
  return { archive, finish: finish => archive.finish(finish), committed, close: () => archive.abort() };
}

/** Nobody knows the file yet, and it goes when this fails: there is no old end to be kept. */
async function extendedOtherForm(
  { converter, name }: OtherForm,
  options: Omit<AppenderOptions, 'path' | 'lock'>,
): Promise<Destination> {
  const archive = await ArchiveAppender.open({ ...options, path: converter.partialPath });
  try {
    await archive.begin(null);
  } catch (error) {
    await archive.abort();
    throw error;
  }
  const finish = async (last: FinishOptions) => {
    const finished = await archive.finish(last);
    const sha256Path = await publishWithHashes(finished.path, name.path, finished.sha256Path !== null);
    return { ...finished, path: name.path, sha256Path };
  };
  return { archive, finish, committed: () => name.free(), close: () => archive.abort() };
}

async function reservedPath(
  { target, facts }: BackupJob,
  context: OperationContext,
  time: Date,
  compress: boolean,
): Promise<ReservedName> {
  const directory = join(target.path!, BACKUPS_DIR);
  const stem = archiveStem(facts.config.name, time);
  return reserveArchiveName(context, directory, stem, endingOf(compress));
}
