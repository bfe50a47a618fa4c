/** Making the restored domain known to libvirt, and starting it. */
import { type Domain, SaveRestore, SnapshotCreate } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { changedSource } from '../../disks/index.ts';
import { START_TIMEOUT_MS } from '../../libvirt/call-times.ts';
import { writeState } from '../../snapshots/index.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { defineOwnDomain } from '../domain/define-own.ts';
import type { RestorePlan } from './check.ts';
import { movedPaths, restoredState } from './definition.ts';
import { type ExtractedMemory, memoryPaths } from './files.ts';
import { leftOutWarnings, stateSubject } from './gate.ts';

/** Defines the domain and its saved states, parents first; the one that was current is current again. */
export async function defineRestored(
  dependencies: WorkflowDependencies,
  context: OperationContext,
  plan: RestorePlan,
  { memory, xml }: { memory: ExtractedMemory; xml: string },
): Promise<Domain> {
  const changed = await changedSource(plan.baseMarks);
  if (changed !== undefined)
    throw new VirtkeepError('template_mismatch', {
      template: plan.manifest.template?.name ?? plan.templateId ?? '',
      file: plan.manifest.vm.name,
      reason: `${changed} was changed meanwhile`,
    });
  const files = plan.placement.disks.flatMap(disk => disk.layers.at(-1)?.path ?? []);
  const own = { domainId: plan.identity.uuid, files };
  const domain = await defineOwnDomain(dependencies, context, own, xml);
  const paths = movedPaths(plan, memoryPaths(memory));
  const memories = memory.saved.map(({ path }) => path);
  for (const state of plan.states) {
    throwIfAborted(context.signal);
    const flags = SnapshotCreate.REDEFINE | (state.current ? SnapshotCreate.CURRENT : 0);
    const restored = restoredState(state, plan, paths, memories);
    for (const warning of leftOutWarnings(stateSubject(state.record.name), restored)) context.warn(warning);
    await writeState(domain, restored.xml, flags);
  }
  return domain;
}

/** A memory file and the definition to resume with: never the file's own, which others may have exchanged since it was judged. */
export interface ResumeMemory {
  path: string;
  xml: string;
}

export interface StartOptions {
  /** Memory to resume from; null: the guest boots. */
  resume: ResumeMemory | null;
  startOn: boolean;
}

/**
 * A backup with memory is consistent only together with it, so the VM resumes where it was: at once when it is to be
 * started, else at its first start (libvirt's managed save). A memory that this node cannot load is not worth the VM.
 * @returns whether the guest goes on from its memory
 */
export async function startRestored(
  dependencies: WorkflowDependencies,
  context: OperationContext,
  domain: Domain,
  { resume, startOn }: StartOptions,
): Promise<boolean> {
  if (resume !== null) {
    try {
      const flags = startOn ? SaveRestore.RUNNING : SaveRestore.PAUSED;
      await dependencies.libvirt().restoreDomain(resume.path, resume.xml, flags, { timeoutMs: 0 });
      if (!startOn) await domain.managedSave(SaveRestore.RUNNING, { timeoutMs: 0 });
      return startOn;
    } catch (error) {
      throwIfAborted(context.signal);
      if (await domain.isActive()) await domain.destroy();
      context.warn(
        `The saved memory cannot be used here (${reasonOf(error)}); the VM starts as after a power cut.`,
      );
    }
  }
  if (startOn) await domain.create(0, { timeoutMs: START_TIMEOUT_MS });
  return false;
}
