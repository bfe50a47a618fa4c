/**
 * Full backup of a VM into one archive on a data pool (specification 2.1, 2.2, 3.2, 8).
 *
 * check → estimate → state → copy → publish → merge. The archive is in place and good before the automatic state is
 * merged back: a merge that has to be tried again does not make the backup fail. Whatever happens, the effects declared
 * on the way are undone by the one undo code (recover.ts), by this agent or by the next.
 */
import { mkdir, readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { MiB } from '@virtkeep/shared/units';
import { ArchiveWriter, type FinishOptions, partialPathOf } from '../archive/index.ts';
import { BACKUPS_DIR, backupTargetRefusal, type PoolRecord, requireSpace } from '../pools/index.ts';
import { fromLibvirt, leftoverStates, removeAutomaticState, type StateMode } from '../snapshots/index.ts';
import { type BackupFacts, readFacts } from './backup/facts.ts';
import { newArchivePath, timeStamp } from './backup/file-name.ts';
import { chooseMode, type FrozenInstant, freeze, spareDirectoryOf } from './backup/freeze.ts';
import {
  type ArchivePlan,
  type FileSize,
  fullManifest,
  planArchive,
  STATE_NUMBER,
} from './backup/members.ts';
import { changedSource, markSources } from './backup/source-guard.ts';
import { backupFileRecord } from './backup-file.ts';
import type { OperationContext, Workflow } from './context.ts';
import type { WorkflowDependencies } from './dependencies.ts';
import { packTpmState } from './tpm-state.ts';

/** The steps in order, for progress and for the tests that kill the agent at each of them. */
export const BACKUP_STEPS = ['check', 'estimate', 'state', 'copy', 'publish', 'merge'] as const;

/** The merge happens after the point of no return; a cancel cannot reach it, and a stop of the agent ends it anyway. */
const MERGE_TIMEOUT_MS = 24 * 3600 * 1000;
const DEFAULT_LEVEL = 3;
/** Compressed archives of disks are hardly larger than half of their data; one that is ends with `disk_full`. */
const COMPRESSED_SHARE = 0.5;

export function backupWorkflow(dependencies: WorkflowDependencies, request: StartBackupRequest): Workflow {
  return context =>
    run(dependencies, request, context).catch(error => {
      throwIfAborted(context.signal);
      throw fromLibvirt(error, 'backup');
    });
}

async function run(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
): Promise<void> {
  const checked = await context.step('check', () => check(dependencies, request, context));
  const { target, facts, mode } = checked;
  await context.step('estimate', () => estimate(dependencies, request, checked));
  const { requireConsistency } = request;
  const spareDirectory = spareDirectoryOf(facts, target.path!);
  const instant = await context.step('state', () =>
    freeze(context, facts, mode, { requireConsistency, spareDirectory }),
  );
  const draft: Draft = { writer: null };
  try {
    const finish = await context.step('copy', () =>
      copy(dependencies, request, context, { facts, target, instant, draft }),
    );
    const finished = await context.step('publish', () => draft.writer!.finish(finish));
    context.commit({ file: backupFileRecord(finished, target) });
  } finally {
    await draft.writer?.abort();
  }
  dependencies.filesChanged(target.id);
  const { automatic } = instant;
  if (automatic)
    await context.step('merge', () => automatic.handle.undo(AbortSignal.timeout(MERGE_TIMEOUT_MS)));
}

interface Checked {
  target: PoolRecord;
  facts: BackupFacts;
  /** How the disks are going to be frozen; null: not at all. */
  mode: StateMode | null;
}

async function check(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
): Promise<Checked> {
  const pools = await dependencies.pools(context.signal);
  const target = targetPool(pools, request.poolId, dependencies.nodeName);
  const content = { excludeIso: request.excludeIso, excludeVdisks: request.excludeVdisks };
  await removeLeftovers(dependencies, request.domainId, context.signal);
  const facts = await readFacts(dependencies, request.domainId, content, pools);
  const mode = await chooseMode(facts, request.requireConsistency);
  for (const warning of facts.warnings) context.warn(warning);
  return { target, facts, mode };
}

/**
 * Whoever holds a VM finds automatic states on it only when the journal that knew them is lost: an operation keeps its
 * lock until its own are removed.
 */
async function removeLeftovers(
  dependencies: WorkflowDependencies,
  domainId: string,
  signal: AbortSignal,
): Promise<void> {
  const libvirt = dependencies.libvirt();
  for (const state of await leftoverStates(libvirt, domainId)) {
    dependencies.log.warn('an automatic state without an operation is removed', { state: state.name });
    await removeAutomaticState(libvirt, state, { signal, log: dependencies.log });
  }
}

/** The chosen pool, or the node's base pool. @throws VirtkeepError pool_not_found and the refusals of 2.3 rule 7 */
function targetPool(pools: PoolRecord[], poolId: string, nodeName: string): PoolRecord {
  const pool = pools.find(candidate => (poolId === '' ? candidate.isBase : candidate.id === poolId));
  if (!pool)
    throw new VirtkeepError('pool_not_found', { id: poolId || 'of the node (no base data pool is set)' });
  const refusal = backupTargetRefusal(pool, nodeName);
  if (refusal) throw refusal;
  return pool;
}

/** Asks for the space before anything is touched. What is not known yet (saved memory) counts with its upper bound. */
async function estimate(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  { facts, target, mode }: Checked,
): Promise<void> {
  const side = await readSideFiles(dependencies, facts);
  const plan = planArchive({
    ...facts,
    ...side,
    automatic: null,
    consistency: 'off',
    sizes: await sizesOf(otherFiles(facts, null)),
  });
  const share = request.compress ? COMPRESSED_SHARE : 1;
  const memoryBytes = mode === 'memory' ? facts.config.memoryMiB * MiB : 0;
  await requireSpace(target, (plan.neededBytes + memoryBytes) * share);
  const spare = spareDirectoryOf(facts, target.path!);
  if (memoryBytes > 0) await requireSpace({ name: spare, path: spare }, memoryBytes);
}

/** The archive being written; whoever leaves the workflow early finds it here and ends it. */
interface Draft {
  writer: ArchiveWriter | null;
}

interface CopyScope {
  facts: BackupFacts;
  target: PoolRecord;
  instant: FrozenInstant;
  draft: Draft;
}

/** Writes all members. Only frozen files are read, never one that the guest writes to. */
async function copy(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  { facts, target, instant, draft }: CopyScope,
): Promise<FinishOptions> {
  const plan = await planCopy(dependencies, facts, instant);
  const marks = await markSources(plan.sources);
  const path = await archivePath(target, facts.config.name, instant.time, request.compress);
  const backupId = request.fileId;
  const partialPath = partialPathOf(path, backupId);
  context.effects.begin({ type: 'archive', backupId, partialPath, finalPath: path }, 'failure');
  context.progress.total(plan.totalBytes);
  draft.writer = await ArchiveWriter.create({
    path,
    backupId,
    compression: request.compress ? { level: request.compressionLevel || DEFAULT_LEVEL } : null,
    hash: request.hashSum,
    signal: context.signal,
    onProgress: bytes => context.progress.done(bytes),
  });
  await writeMembers(draft.writer, plan);
  await refuseChanged(facts, marks);
  const rest = {
    backupId,
    toolVersion: dependencies.version,
    created: instant.time.toISOString(),
    options: optionsOf(request),
    warnings: facts.warnings,
  };
  return { stateNumber: STATE_NUMBER, manifest: members => fullManifest(plan.manifest, members, rest) };
}

async function planCopy(
  dependencies: WorkflowDependencies,
  facts: BackupFacts,
  instant: FrozenInstant,
): Promise<ArchivePlan> {
  const memoryPath = instant.automatic?.memoryPath ?? null;
  return planArchive({
    ...facts,
    ...(await readSideFiles(dependencies, facts)),
    automatic: instant.automatic && { label: `backup_${timeStamp(instant.time)}`, memoryPath },
    consistency: instant.consistency,
    sizes: await sizesOf(otherFiles(facts, memoryPath)),
  });
}

/** NVRAM and the TPM's state are small, written rarely, and read whole right after the disks were frozen. */
async function readSideFiles(dependencies: WorkflowDependencies, { config }: BackupFacts) {
  const path = config.nvram?.path;
  const bytes = path === undefined ? null : await readFile(path).catch(() => null);
  const tpm =
    config.tpm?.backend === 'emulator' ? await packTpmState(dependencies.swtpmDirectory, config.uuid) : null;
  return { nvram: path !== undefined && bytes !== null ? { path, bytes } : null, tpm };
}

function otherFiles(facts: BackupFacts, memoryPath: string | null): string[] {
  const images = facts.content.images.map(image => image.path);
  const memories = [memoryPath, ...facts.states.map(state => state.memoryPath)];
  return [...images, ...memories.filter(path => path !== null)];
}

async function sizesOf(paths: string[]): Promise<Map<string, FileSize>> {
  const sizes = new Map<string, FileSize>();
  for (const path of paths) {
    const found = await stat(path).catch(error => {
      throw fromIoError(error, 'reading', path);
    });
    sizes.set(path, { fileSize: found.size, allocatedSize: found.blocks * 512 });
  }
  return sizes;
}

async function archivePath(target: PoolRecord, name: string, time: Date, compress: boolean): Promise<string> {
  const directory = join(target.path!, BACKUPS_DIR);
  try {
    await mkdir(directory, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw fromIoError(error, 'making', directory);
  }
  return newArchivePath(directory, name, time, compress);
}

async function writeMembers(writer: ArchiveWriter, plan: ArchivePlan): Promise<void> {
  for (const member of plan.members) {
    if (member.from === 'bytes')
      await writer.addBytes(member.name, member.kind, member.bytes, { formerPath: member.formerPath });
    else if (member.from === 'file')
      await writer.addFile(member.name, member.kind, member.path, { formerPath: member.path });
    else await writer.addRaw(member.name, member.path, member.virtualSize, { formerPath: member.path });
  }
}

/** An off VM that was started, or anybody else who wrote to a file meanwhile: the copy is worth nothing. */
async function refuseChanged(
  facts: BackupFacts,
  marks: Awaited<ReturnType<typeof markSources>>,
): Promise<void> {
  const changed = await changedSource(marks);
  const started = facts.power === 'off' && (await facts.domain.isActive());
  if (!started && changed === undefined) return;
  throw new VirtkeepError('power_state_conflict', {
    domain: facts.config.name,
    state: started ? 'running' : `not what it was (${basename(changed!)} was written to)`,
    action: 'backed up while its disks change; start the backup again',
  });
}

function optionsOf(request: StartBackupRequest): Record<string, unknown> {
  return {
    exclude_iso: request.excludeIso,
    compress: request.compress,
    hash_sum: request.hashSum,
    exclude_vdisks: request.excludeVdisks,
    require_consistency: request.requireConsistency,
    description: request.description,
  };
}
