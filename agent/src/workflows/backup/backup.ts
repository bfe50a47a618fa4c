/**
 * Backup of a VM: a new archive on a data pool, or an increment appended to one (specification 2.1, 2.2, 3.2, 8).
 *
 * check → estimate → state → copy → publish → merge. The archive is in place and good before states are merged: a merge
 * that has to be tried again does not make the backup fail. Whatever happens, the effects declared on the way are undone by
 * the one undo code (recover.ts), by this agent or by the next. An increment differs in four things: what the archive gets before
 * (prepare.ts), what goes in (proof.ts), where it is written (destination.ts), and which states stay (hold.ts).
 */
import { basename, dirname, join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { FinishOptions } from '../../archive/index.ts';
import { markSources } from '../../disks/index.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import { finishedFileOf } from '../archives/backup-file.ts';
import {
  closeConversion,
  declareRemoval,
  type Removal,
  refuseChanged as refuseChangedArchive,
} from '../archives/conversion.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { isForgotten, untilForgotten } from '../domain/forgotten-layers.ts';
import { keepFirmwareOfState, notCopiedFirmware } from '../firmware/state-firmware.ts';
import { estimate, planCopy, refuseChanged, writeMembers } from './copy.ts';
import { type Destination, openDestination } from './destination.ts';
import { type FrozenInstant, freeze, spareDirectoryOf } from './freeze.ts';
import { mayMerge, mergeOldStates } from './hold.ts';
import { ToldHooks } from './hooks.ts';
import { type BackupJob, checkBackup, type ExtendedArchive } from './job.ts';
import { type ArchivePlan, manifestOf, stateNumberOf } from './members.ts';
import { type OtherForm, type PreparedBase, prepareBase, tellGivenUp } from './prepare.ts';
import { watchStarts } from './starts.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const BACKUP_STEPS = ['check', 'estimate', 'state', 'copy', 'publish', 'merge'] as const;

/** The merge happens after the point of no return; a cancel cannot reach it, and a stop of the agent ends it anyway. */
const MERGE_TIMEOUT_MS = 24 * 3600 * 1000;

/** The workflow: a new archive, or an increment of one. Result: the archive's file and what stands in its manifest. */
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
  const draft: { checked?: BackupJob } = {};
  try {
    const checked = await context.step('check', async () => {
      draft.checked = await checkBackup(dependencies, request, context);
      return draft.checked;
    });
    const notCopied = notCopiedFirmware(checked.facts.config);
    if (notCopied !== null) context.warn(notCopied);
    await context.step('estimate', () => estimate(dependencies, checked));
    const { job, base } = await prepareBase(dependencies, request, context, checked);
    await (base.form ? extendOtherForm : backUp)(dependencies, request, context, { job, prepared: base });
  } finally {
    await draft.checked?.base?.lock.release();
  }
}

/** What is to be backed up, and what the archive that it extends got for it. */
interface Scope {
  job: BackupJob;
  prepared: PreparedBase;
}

/** The archive's other form takes its place, or nothing has happened to it. */
async function extendOtherForm(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  scope: Scope,
): Promise<void> {
  const form = scope.prepared.form!;
  let isCommitted = false;
  const commit: OperationContext['commit'] = result => {
    context.commit(result);
    isCommitted = true;
  };
  try {
    await backUp(dependencies, request, { ...context, commit }, scope);
  } catch (error) {
    if (!isCommitted) tellGivenUp(context, scope.job.base!);
    throw error;
  } finally {
    await closeConversion(form);
  }
}

/** With the node's hooks around it, where there are some. */
async function backUp(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  scope: Scope,
): Promise<void> {
  const hooks = dependencies.hooks && new ToldHooks(context, scope.job);
  try {
    await hooks?.start(dependencies);
    await make(dependencies, request, context, { ...scope, hooks });
  } catch (error) {
    hooks?.failed(error);
    throw error;
  }
}

async function make(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  { job, prepared, hooks }: Scope & { hooks: ToldHooks | undefined },
): Promise<void> {
  const { target, facts, mode, base, backupId } = job;
  const number = stateNumberOf(base);
  const spareDirectory = spareDirectoryOf(facts, target.path!);
  const lasting = job.incremental ? { backupId, number } : null;
  const { requireConsistency } = request;
  const instant = await context.step('state', async () => {
    await refuseStarted(job);
    const frozen = await freeze(context, facts, mode, { requireConsistency, spareDirectory, lasting });
    const name = frozen.automatic?.name ?? null;
    if (name !== null) await keepFirmwareOfState(dependencies, facts.domain, name);
    return frozen;
  });
  const draft: { destination?: Destination; removal?: Removal } = {};
  const stop = watchStop(dependencies, job, instant, context);
  try {
    const copying = { ...context, signal: stop.signal };
    const finish = await context.step('copy', async () => {
      await stop.check();
      draft.destination = await openDestination(dependencies, request, copying, {
        job,
        time: instant.time,
        prepared,
      });
      return copy(dependencies, request, copying, { job, instant, destination: draft.destination });
    });
    const finished = await context.step('publish', () => draft.destination!.finish(finish));
    if (prepared.form) draft.removal = await replaces(context, base!, prepared.form);
    const filename = base && join(dirname(base.filename), basename(finished.path));
    const file = finishedFileOf(finished, job.base ?? job.target, filename ?? undefined);
    hooks?.succeeded(finished.path);
    context.commit({ $case: 'backup', value: { file, state: number } });
  } catch (error) {
    throwIfAborted(stop.signal);
    throw error;
  } finally {
    stop.end();
    await draft.destination?.close();
    if (prepared.form) await closeConversion(prepared.form);
    // an extension that was given up: whoever read the file meanwhile found it without its end
    if (base) dependencies.filesChanged(target.id);
  }
  await draft.destination!.committed();
  const { removal } = draft;
  if (removal) await context.step('remove', () => removal.remove(context, base!.lock));
  await job.base?.lock.release();
  dependencies.filesChanged(target.id);
  await mergeStates(dependencies, request, context, { job, instant });
}

/**
 * What is copied of a VM that is off is what it would write to. Others may have started it since it was looked at: a hook may have
 * taken long.
 */
async function refuseStarted({ facts: { domain, power, config } }: BackupJob): Promise<void> {
  if (power !== 'off' || !(await domain.isActive())) return;
  throw new VirtkeepError('power_state_conflict', {
    domain: config.name,
    state: 'running, though it was off a moment ago',
    action: 'backed up as one that is off; start the backup again',
  });
}

/** The other form of an archive has its name: from the commit on the former one goes. */
async function replaces(
  context: OperationContext,
  { path, filename, lock }: ExtendedArchive,
  { converter, mark, sizeBytes }: OtherForm,
): Promise<Removal> {
  await refuseChangedArchive(lock, mark);
  const removal = await declareRemoval(context, { path, sizeBytes, converter }, converter.path);
  context.warn(`The archive ${filename} was converted: it is ${basename(converter.path)} now.`);
  return removal;
}

/**
 * A transient VM that stops has its newest data in a layer that its manager does not know. That manager may start it again
 * at once, so the copy ends and the layer is put back; every other VM may stop while it is copied.
 */
function watchStop(
  { libvirt }: WorkflowDependencies,
  { facts }: BackupJob,
  { automatic }: FrozenInstant,
  { signal }: OperationContext,
): { signal: AbortSignal; check(): Promise<void>; end(): void } {
  if (facts.persistent || !automatic) return { signal, check: async () => {}, end: () => {} };
  const [stopped, ended] = [new AbortController(), new AbortController()];
  const { uuid: domainId, name: domain } = facts.config;
  const state = { domainId, name: automatic.stateName, overlays: [] };
  const stop = (isGone: boolean) => {
    if (isGone) stopped.abort(new VirtkeepError('domain_stopped', { domain }));
  };
  void untilForgotten(libvirt(), state, AbortSignal.any([signal, ended.signal])).then(stop);
  const copying = AbortSignal.any([signal, stopped.signal]);
  return {
    signal: copying,
    check: async () => {
      stop(await isForgotten(libvirt(), state));
      throwIfAborted(copying);
    },
    end: () => ended.abort(),
  };
}

interface CopyScope {
  job: BackupJob;
  instant: FrozenInstant;
  destination: Destination;
}

/** Writes all members. Only frozen files are read, never one that the guest writes to. */
async function copy(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  { job, instant, destination }: CopyScope,
): Promise<FinishOptions> {
  const { facts, base, backupId } = job;
  const plan = await writeUnchanged(dependencies, context, { job, instant, destination });
  const record = {
    backupId,
    toolVersion: dependencies.version,
    created: instant.time.toISOString(),
    options: optionsOf(request, job),
    warnings: facts.warnings,
    incremental: instant.automatic?.name != null,
    fallbackReason: job.fallbackReason,
  };
  return {
    stateNumber: plan.manifest.state.number,
    manifest: members => manifestOf(plan.manifest, members, record, base?.manifest ?? null),
  };
}

/** Writes the members, and proves afterwards that what was read did not change meanwhile. */
async function writeUnchanged(
  dependencies: WorkflowDependencies,
  context: OperationContext,
  { job, instant, destination }: CopyScope,
): Promise<ArchivePlan> {
  const { facts } = job;
  const isReadAsItLies = facts.power === 'off' && instant.automatic === null;
  const starts = isReadAsItLies ? watchStarts(dependencies.libvirt(), facts.config.uuid) : null;
  try {
    await refuseStarted(job);
    const plan = await planCopy(dependencies, job, instant);
    const marks = await markSources(plan.sources);
    context.progress.total(plan.totalBytes);
    await writeMembers(destination.archive, plan);
    await refuseChanged(context, facts, { paths: plan.sources, marks, starts });
    return plan;
  } finally {
    starts?.end();
  }
}

/** Takes away the state of a backup that cannot be extended, or the old ones that no archive needs to be extended. */
async function mergeStates(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  { job: { incremental, backupId }, instant: { automatic } }: { job: BackupJob; instant: FrozenInstant },
): Promise<void> {
  if (automatic && automatic.name === null)
    await context.step('merge', () => automatic.handle.undo(AbortSignal.timeout(MERGE_TIMEOUT_MS)));
  else if (incremental && mayMerge(request))
    await context.step('merge', () => mergeOldStates(dependencies, context, request, backupId));
}

/** What was asked for the newest state; the form of the file is what it was made with. */
function optionsOf(request: StartBackupRequest, job: BackupJob): Record<string, unknown> {
  const former = job.base?.manifest.options;
  return {
    exclude_iso: request.excludeIso,
    compress: job.compressed,
    hash_sum: (former && request.extendHashed === true) || (former?.hash_sum ?? request.hashSum),
    exclude_vdisks: request.excludeVdisks,
    require_consistency: request.requireConsistency,
    description: request.description,
    can_be_incremental: job.incremental,
    hold_states: request.holdStates,
  };
}
