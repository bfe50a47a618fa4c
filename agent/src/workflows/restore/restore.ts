/**
 * Restore of a VM from an archive (specification 2.3), as a new VM or in place of a lost one: any state of it, with the
 * saved states that the VM had then, or flattened to one image a disk.
 *
 * check → extract → join → define → start. Each file and the domain are declared before they appear, so after a
 * failure, a cancel or a crash nothing of the restore is left.
 *
 * What an archive may do: its paths are used inside this node's writable pools only, its images may name no file but
 * each other and the template, its devices are attached only when nobody uses them, and libvirt gets its XML through one gate
 * (restore/gate.ts). What else its owner defined (kernel, host devices, QEMU options) comes back only from an archive that this
 * node vouches for; who may merely put files into a pool's backups gets nothing but a guest.
 */

import { throwIfAborted } from '@virtkeep/shared/abort';
import type { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import type { ResultOf } from '@virtkeep/shared/operation-result';
import { diskId } from '../../disks/index.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import { findBackupFile } from '../archives/find-file.ts';
import { type OpenedBackup, openBackup } from '../archives/source.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { setResumedClock } from '../domain/clock.ts';
import { checkRestore, type RestorePlan } from './check.ts';
import { restoredDefinition } from './definition.ts';
import { judgeDrives } from './drives.ts';
import { type Extracted, extractFiles, joinLayers, patchMemory, writeFirmwareState } from './files.ts';
import { defineRestored, type ResumeMemory, startRestored } from './start.ts';
import { requireVouched } from './vouch.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const RESTORE_STEPS = ['check', 'extract', 'join', 'define', 'start'] as const;

/** The workflow: a new domain from a state of an archive; a failure or a cancel leaves nothing of it. */
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
  const claims: (() => void)[] = [];
  try {
    admit(dependencies, request, context, backup);
    const checked = await context.step('check', () =>
      checkRestore(
        dependencies,
        request,
        { pools, file, backup },
        { claim: end => claims.push(end), signal: context.signal },
      ),
    );
    for (const warning of checked.warnings) context.warn(warning);
    const shape = request.flatten ? 'flat' : 'chain';
    const extracted = await context.step('extract', () => extractFiles(context, backup, checked, shape));
    const { memory } = extracted;
    const { plan, resume } = await context.step('join', () =>
      join(dependencies, context, { backup, checked }, extracted),
    );
    const domain = await context.step('define', () =>
      defineRestored(dependencies, context, plan, { memory, xml: restoredDefinition(plan).xml }),
    );
    const resumed = await context.step('start', () =>
      startRestored(dependencies, context, domain, { resume, startOn: request.startOn }),
    );
    context.commit({ $case: 'restore', value: restoreResult(plan) });
    if (resumed) await setResumedClock(context, domain);
  } finally {
    for (const end of claims) end();
    await backup.archive.close();
  }
}

/** Whoever may not restore what nobody vouches for is refused; for others the task says so. @throws VirtkeepError archive_foreign */
export function admit(
  dependencies: WorkflowDependencies,
  { file, allowForeign }: StartRestoreRequest,
  context: OperationContext,
  backup: OpenedBackup,
): void {
  const filename = file?.filename ?? '';
  const warning = requireVouched(dependencies.judge(backup.archive), { filename, allowForeign });
  if (warning !== null) context.warn(warning);
  for (const text of backup.unknown) context.warn(text);
}

async function join(
  dependencies: WorkflowDependencies,
  context: OperationContext,
  { backup, checked }: { backup: OpenedBackup; checked: RestorePlan },
  { memory, passing }: Extracted,
): Promise<{ plan: RestorePlan; resume: ResumeMemory | null }> {
  await joinLayers(context, backup.archive.path, checked, passing);
  const nvramPath = await writeFirmwareState(context, dependencies, backup, checked);
  const qcow2Images = await judgeDrives(checked, text => context.warn(text));
  const plan = { ...checked, nvramPath, qcow2Images };
  return { plan, resume: await patchMemory(context, plan, memory) };
}

/** What a restore answers; the same for an instant one. */
export function restoreResult(plan: RestorePlan): ResultOf<'restore'> {
  const { identity, placement, warnings } = plan;
  return {
    domainId: identity.uuid,
    name: identity.name,
    disks: placement.disks.map(({ disk, pool, layers }) => ({
      id: diskId(layers[0]!.path, pool),
      path: layers.at(-1)!.path,
      poolId: pool.id,
      targetDev: disk.target,
    })),
    warnings,
    poolChanged: placement.poolChanged,
    images: undefined,
  };
}
