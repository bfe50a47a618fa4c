/**
 * Restore of a VM from an archive (specification 2.3), as a new VM or in place of a lost one.
 *
 * check → extract → join → define → start. Each file and the domain are declared before they appear, so after a
 * failure, a cancel or a crash nothing of the restore is left.
 *
 * What an archive may do: its paths are used inside this node's writable pools only, its images may name no file but
 * each other and the template, its devices are attached only when nobody uses them. The rest of its definition (kernel,
 * host devices, QEMU options) is taken as it stands: who may put files into a pool's backups may define VMs.
 */
import { type Domain, SaveRestore, SnapshotCreate } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { reasonOf } from '@virtkeep/shared/errors';
import type { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { diskId } from '../disks/index.ts';
import { fromLibvirt } from '../snapshots/index.ts';
import type { OperationContext, Workflow } from './context.ts';
import type { WorkflowDependencies } from './dependencies.ts';
import { checkRestore, type RestorePlan } from './restore/check.ts';
import { movedPaths, restoredDefinition, restoredState } from './restore/definition.ts';
import {
  type ExtractedMemory,
  extractFiles,
  joinLayers,
  patchMemory,
  writeFirmwareState,
} from './restore/files.ts';
import { findBackupFile, type OpenedBackup, openBackup } from './restore/source.ts';

/** The steps in order, for progress and for the tests that kill the agent at each of them. */
export const RESTORE_STEPS = ['check', 'extract', 'join', 'define', 'start'] as const;

export function restoreWorkflow(dependencies: WorkflowDependencies, request: StartRestoreRequest): Workflow {
  return async context => {
    try {
      await run(dependencies, request, context);
    } catch (error) {
      throwIfAborted(context.signal);
      throw fromLibvirt(error, 'restore');
    }
  };
}

async function run(
  dependencies: WorkflowDependencies,
  request: StartRestoreRequest,
  context: OperationContext,
): Promise<void> {
  const pools = await dependencies.pools(context.signal);
  const file = await findBackupFile(pools, request.file);
  const backup = await openBackup(file.path, request.state, context.signal);
  try {
    const checked = await context.step('check', () =>
      checkRestore(dependencies, request, pools, file, backup),
    );
    for (const warning of checked.warnings) context.warn(warning);
    const memory = await context.step('extract', () => extractFiles(context, backup, checked));
    const plan = await context.step('join', () => join(dependencies, context, backup, checked, memory));
    const domain = await context.step('define', () => define(dependencies, context, backup, plan, memory));
    await context.step('start', () => start(dependencies, request, context, domain, memory));
    context.commit(resultOf(plan));
  } finally {
    await backup.archive.close();
  }
}

async function join(
  dependencies: WorkflowDependencies,
  context: OperationContext,
  backup: OpenedBackup,
  checked: RestorePlan,
  memory: ExtractedMemory,
): Promise<RestorePlan> {
  await joinLayers(context, backup.archive.path, checked);
  const nvramPath = await writeFirmwareState(context, dependencies, backup, checked);
  const plan = { ...checked, nvramPath };
  await patchMemory(plan, memory);
  return plan;
}

/** Defines the domain and its saved states, parents first; the one that was current is current again. */
async function define(
  dependencies: WorkflowDependencies,
  context: OperationContext,
  { archive, manifest, xml }: OpenedBackup,
  plan: RestorePlan,
  memory: ExtractedMemory,
): Promise<Domain> {
  context.effects.begin({ type: 'domain', domainId: plan.identity.uuid }, 'failure');
  const domain = await dependencies.libvirt().defineDomain(restoredDefinition(xml, plan));
  const paths = movedPaths(plan, memory.moved);
  for (const snapshot of manifest.snapshots) {
    throwIfAborted(context.signal);
    const stateXml = (await archive.readMember(snapshot.xmlMember, context.signal)).toString('utf8');
    const flags = SnapshotCreate.REDEFINE | (snapshot.current ? SnapshotCreate.CURRENT : 0);
    await domain.createSnapshot(restoredState(stateXml, plan, paths), flags);
  }
  return domain;
}

/**
 * A backup with memory is consistent only together with it, so the VM resumes where it was: at once when it is to be
 * started, else at its first start (libvirt's managed save). A memory that this node cannot load is not worth the VM.
 */
async function start(
  dependencies: WorkflowDependencies,
  request: StartRestoreRequest,
  context: OperationContext,
  domain: Domain,
  memory: ExtractedMemory,
): Promise<void> {
  if (memory.resume !== null) {
    try {
      const flags = request.startOn ? SaveRestore.RUNNING : SaveRestore.PAUSED;
      await dependencies.libvirt().restoreDomain(memory.resume, null, flags, { timeoutMs: 0 });
      if (!request.startOn) await domain.managedSave(SaveRestore.RUNNING, { timeoutMs: 0 });
      return;
    } catch (error) {
      throwIfAborted(context.signal);
      if (await domain.isActive()) await domain.destroy();
      context.warn(
        `The saved memory cannot be used here (${reasonOf(error)}); the VM starts as after a power cut.`,
      );
    }
  }
  if (request.startOn) await domain.create(0, { timeoutMs: 0 });
}

function resultOf(plan: RestorePlan): unknown {
  const { identity, placement, warnings } = plan;
  return {
    domain_id: identity.uuid,
    name: identity.name,
    disks: placement.disks.map(({ disk, pool, layers }) => ({
      id: diskId(layers[0]!.path, pool),
      path: layers.at(-1)!.path,
      pool_id: pool.id,
      target_dev: disk.target,
    })),
    warnings,
    pool_changed: placement.poolChanged,
  };
}
