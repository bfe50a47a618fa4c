/**
 * Instant restore: the VM is started at once, on images whose data are still in the archive, and pulls them in while it
 * runs (or by qemu-img, when it is switched off meanwhile).
 *
 * check → extract → overlay → define → start, then the point of no return, then pull. Until the VM runs a failure, a
 * cancel or a crash leaves nothing. From then on the VM is the user's: a cancel is refused, and the pull goes on through
 * errors and restarts of the agent until no disk refers to the archive. So long the archive is held shared, so that it
 * can be neither deleted nor extended, and the VM's disks are held, so that no saved state can be put on them; its power
 * is not held.
 *
 * The archive is opened by QEMU for reading only; nothing ever commits into it.
 */
import type { Domain } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import type { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { fromLibvirt } from '../../../libvirt/errors.ts';
import { findBackupFile } from '../../archives/find-file.ts';
import { openBackup } from '../../archives/source.ts';
import type { OperationContext, Workflow } from '../../context.ts';
import type { WorkflowDependencies } from '../../dependencies.ts';
import { setResumedClock } from '../../domain/clock.ts';
import type { Effect, EffectHandle } from '../../effect.ts';
import { checkRestore } from '../check.ts';
import { restoredDefinition } from '../definition.ts';
import { judgeDrives } from '../drives.ts';
import { extractFiles, patchMemory, writeFirmwareState } from '../files.ts';
import { admit, restoreResult } from '../restore.ts';
import { defineRestored, startRestored } from '../start.ts';
import { allowReading } from './access.ts';
import { withArchiveChain } from './chain.ts';
import { instantDisks, makeOverlays } from './prepare.ts';
import { pullLocked } from './pull.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const INSTANT_STEPS = ['check', 'extract', 'overlay', 'define', 'start', 'pull'] as const;

type PullEffect = Extract<Effect, { type: 'instant_pull' }>;

/** The workflow: a domain that is started from the archive's own bytes, and whose data is pulled out of it then. */
export function instantRestoreWorkflow(
  dependencies: WorkflowDependencies,
  request: StartRestoreRequest,
): Workflow {
  return async context => {
    try {
      const pull = await start(dependencies, request, context);
      const clock = pull.resumed && setResumedClock(context, pull.resumed);
      await context.step('pull', () => pullToTheEnd(dependencies, context, pull));
      await clock;
    } catch (error) {
      throwIfAborted(context.signal);
      throw fromLibvirt(error, 'restore');
    }
  };
}

/** A started VM, and what is to be pulled in. */
interface Started {
  effect: PullEffect;
  /** The VM, when its guest goes on from its memory. */
  resumed: Domain | null;
  handle: EffectHandle;
}

async function start(
  dependencies: WorkflowDependencies,
  request: StartRestoreRequest,
  context: OperationContext,
): Promise<Started> {
  const pools = await dependencies.pools(context.signal);
  const file = await findBackupFile(pools, request.file);
  const backup = await openBackup(file.path, request.state, context.signal);
  const claims: (() => void)[] = [];
  try {
    admit(dependencies, request, context, backup);
    const { plan, disks } = await context.step('check', async () => {
      const checked = await checkRestore(
        dependencies,
        request,
        { pools, file, backup },
        { claim: end => claims.push(end), signal: context.signal },
      );
      const found = await instantDisks(backup, file, checked, context.signal);
      await allowReading(context, dependencies, file.path, file.filename);
      return { plan: checked, disks: found };
    });
    for (const warning of plan.warnings) context.warn(warning);
    const effect: PullEffect = {
      type: 'instant_pull',
      domainId: plan.identity.uuid,
      archivePath: file.path,
      bandwidth: Number(request.bandwidth),
      disks,
    };
    const handle = context.effects.begin(effect, 'success');
    const { memory } = await context.step('extract', () => extractFiles(context, backup, plan, 'overlay'));
    const { whole, resume } = await context.step('overlay', async () => {
      await makeOverlays(context, plan, disks);
      const nvramPath = await writeFirmwareState(context, dependencies, backup, plan);
      const qcow2Images = await judgeDrives(plan, text => context.warn(text));
      const complete = { ...plan, nvramPath, qcow2Images };
      return { whole: complete, resume: await patchMemory(context, complete, memory) };
    });
    const onArchive = (xml: string) => withArchiveChain(xml, file.path, disks);
    const domain = await context.step('define', () => {
      const xml = onArchive(restoredDefinition(whole).xml);
      return defineRestored(dependencies, context, whole, { memory, xml });
    });
    const resumed = await context.step('start', async () => {
      const onBytes = resume && { ...resume, xml: onArchive(resume.xml) };
      return startRestored(dependencies, context, domain, { resume: onBytes, startOn: true });
    });
    context.commit({ $case: 'restore', value: restoreResult(plan) });
    return { effect, handle, resumed: resumed ? domain : null };
  } finally {
    for (const end of claims) end();
    await backup.archive.close();
  }
}

async function pullToTheEnd(
  dependencies: WorkflowDependencies,
  context: OperationContext,
  { effect, handle }: Started,
): Promise<void> {
  const { signal, log } = context;
  await pullLocked(dependencies, effect, {
    signal,
    log,
    onProgress: (done, total) => {
      context.progress.total(total);
      context.progress.done(done);
    },
  });
  // as an agent that finds it in the journal does: it also asks whether the pools are there
  await handle.undo(signal);
}
