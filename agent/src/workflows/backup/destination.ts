/** Where the members go: a new archive under a partial name, or the end of one that is extended. */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fromIoError } from '@virtkeep/shared/errors';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { ArchiveAppender, ArchiveWriter, partialPathOf } from '../../archive/index.ts';
import { BACKUPS_DIR } from '../../pools/index.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { tailPathOf } from '../extend/base.ts';
import { newArchivePath } from './file-name.ts';
import type { BackupJob } from './job.ts';

const DEFAULT_LEVEL = 3;

export interface Destination {
  archive: ArchiveWriter | ArchiveAppender;
  /** To be called after the commit: what would undo the work goes. */
  committed(): Promise<void>;
}

/**
 * Declares the effect and opens the archive.
 * @throws VirtkeepError file_exists, archive_damaged, and what writing can raise
 */
export async function openDestination(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  { job, time }: { job: BackupJob; time: Date },
): Promise<Destination> {
  const level = request.compressionLevel || DEFAULT_LEVEL;
  const common = {
    signal: context.signal,
    onProgress: (bytes: number) => context.progress.done(bytes),
    ...(dependencies.compressionWorkers && { workers: dependencies.compressionWorkers }),
  };
  if (job.base) return extended(context, job.base.path, { ...common, level });
  const path = await archivePath(job, time, request.compress);
  const { backupId } = job;
  const partialPath = partialPathOf(path, backupId);
  context.effects.begin({ type: 'archive', backupId, partialPath, finalPath: path }, 'failure');
  const archive = await ArchiveWriter.create({
    ...common,
    path,
    backupId,
    compression: request.compress ? { level } : null,
    hash: request.hashSum,
  });
  return { archive, committed: async () => {} };
}

async function extended(
  context: OperationContext,
  path: string,
  options: { level: number; signal: AbortSignal; onProgress: (bytes: number) => void },
): Promise<Destination> {
  const archive = await ArchiveAppender.open({ ...options, path });
  const tailPath = tailPathOf(path, context.id);
  try {
    context.effects.begin({ type: 'file', path: tailPath }, 'success');
    context.effects.begin({ type: 'appended_archive', path, tailPath }, 'failure');
    await archive.begin(tailPath);
  } catch (error) {
    await archive.abort();
    throw error;
  }
  // at once, and not only with the operation's end, which may have states to merge first
  return { archive, committed: () => rm(tailPath, { force: true }) };
}

async function archivePath({ target, facts }: BackupJob, time: Date, compress: boolean): Promise<string> {
  const directory = join(target.path!, BACKUPS_DIR);
  try {
    await mkdir(directory, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw fromIoError(error, 'making', directory);
  }
  return newArchivePath(directory, facts.config.name, time, compress);
}
