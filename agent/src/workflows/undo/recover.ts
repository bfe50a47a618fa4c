/**
 * Undoing what an operation did: the only undo code there is. Used by the running agent when an operation fails, is
 * cancelled or ends, and by the next agent after a crash, so each case is idempotent and expects to find any state.
 */
import { freeName, undoAppend } from '../../archive/index.ts';
import { parseDomain } from '../../domain-xml/index.ts';
import { ensureResumed, ensureThawed } from '../../guest/index.ts';
import { tellHook } from '../../hooks.ts';
import { type LeftImage, PendingAnswers } from '../../images/index.ts';
import { fromLibvirt, patiently } from '../../libvirt/errors.ts';
import {
  LENDING_STATE,
  mergeState,
  removeAutomaticState,
  removeUnusedLayers,
  undoRevert,
} from '../../snapshots/index.ts';
import { removeReplaced, removeUnfinished } from '../archives/remains.ts';
import { replaceByTrimmed, trimmedOfBefore } from '../archives/trimmed.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { forgetMerging, noteMerging, settleForgotten } from '../domain/forgotten-layers.ts';
import { removeOrphanedFiles } from '../domain/remove-domain.ts';
import { renameBack } from '../domain/rename-domain.ts';
import { startRefusal } from '../domain/stale-copy.ts';
import type { Effect, UndoEffect } from '../effect.ts';
import { pruneFirmware, putBackFirmware } from '../firmware/state-firmware.ts';
import { stayingChange } from '../guest/change.ts';
import { stayingName } from '../guest/directory.ts';
import { completeChange } from '../guest/offline.ts';
import { stayingPackages } from '../guest/packages.ts';
import { undoAttach } from '../import-disk/attach.ts';
import { undoLoan } from '../lend/loan.ts';
import { releaseState } from '../lend/state-freezer.ts';
import { restoreAccess } from '../restore/instant/access.ts';
import { pullLocked } from '../restore/instant/pull.ts';
import { switchTemplate } from '../template/switch.ts';
import { removeOwnDirectory, removeOwnDomain, removeOwnFile } from './own-undo.ts';

type Warn = (text: string) => void;

/** @throws VirtkeepError when an effect could not be undone; it is tried again then */
export function undoEffects(
  dependencies: WorkflowDependencies,
  pending: PendingAnswers = new PendingAnswers(),
): UndoEffect {
  return async (effect, signal, warn, amend) => {
    try {
      await undoEffect(dependencies, effect, signal, { warn, amend, pending });
    } catch (error) {
      throw fromLibvirt(error, effect.type);
    }
  };
}

async function undoEffect(
  dependencies: WorkflowDependencies,
  effect: Effect,
  signal: AbortSignal,
  { warn, amend, pending }: { warn: Warn; amend: (left: Effect) => void; pending: PendingAnswers },
): Promise<void> {
  const { log } = dependencies;
  const settle = (left: readonly LeftImage[]) => pending.settle(left, warn);
  const tell = async (left: Promise<LeftImage[]>) => settle(await left);
  switch (effect.type) {
    case 'frozen_guest':
      return ensureThawed(dependencies.libvirt().domain(effect.domainId), signal, log);
    case 'paused_guest':
      return patiently(signal, () => ensureResumed(dependencies.libvirt().domain(effect.domainId)));
    case 'automatic_state': {
      await removeState(dependencies, effect, signal, { warn, pending });
      return patiently(signal, () => pruneFirmware(dependencies, effect.domainId));
    }
    case 'loan':
      return patiently(signal, () => undoLoan(dependencies, effect, { signal, log, warn, settle }));
    case 'attached_disk':
      return patiently(signal, () => undoAttach(dependencies, effect, { log, warn }));
    case 'removed_state': {
      const options = { signal, log, warn, settle };
      if (effect.name === LENDING_STATE) await releaseState(dependencies, effect.domainId, options);
      else {
        const bandwidthMiB = dependencies.mergeBandwidthMiB;
        await mergeState(dependencies, effect, { ...options, bandwidthMiB });
      }
      return patiently(signal, () => pruneFirmware(dependencies, effect.domainId));
    }
    case 'revert':
      return tell(
        undoRevert(dependencies, effect, {
          signal,
          warn,
          startRefusal: async () => {
            const { uuid: id, name } = parseDomain(effect.formerDefinition, effect.domainId);
            return startRefusal(dependencies, { id, name }, signal);
          },
          started: () => amend({ ...effect, wasRunning: false }),
          beforeDefinition: async () => effect.firmware && putBackFirmware(dependencies, effect.firmware),
        }),
      );
    case 'unused_layers':
      return tell(removeUnusedLayers(dependencies, effect, signal));
    case 'appended_archive':
      return undoAppend(effect.path, effect.tailPath);
    case 'archive':
      return removeUnfinished(effect, signal);
    case 'reserved_name':
      return freeName(effect.path, effect.owner);
    case 'replaced_archive':
      if (effect.isTrimmed) return replaceByTrimmed(trimmedOfBefore(effect), { signal, warn });
      return removeReplaced(effect, { signal, warn });
    case 'trimmed_archive':
      return replaceByTrimmed(effect, { signal, warn });
    case 'file':
      return patiently(signal, () => removeOwnFile(dependencies, effect, signal, warn));
    case 'directory':
      return removeOwnDirectory(dependencies, effect);
    case 'domain':
      return patiently(signal, () => removeOwnDomain(dependencies, effect, warn));
    case 'instant_pull':
      return pullLocked(dependencies, effect, { signal, log, settle: left => pending.settle(left, warn) });
    case 'archive_access':
      return restoreAccess(effect, dependencies, amend);
    case 'changed_disks':
      return completeChange(dependencies.libvirt(), effect, { signal, warn });
    case 'template_change':
      return switchTemplate(dependencies, effect, { signal, warn });
    case 'renamed_domain':
      return patiently(signal, () => renameBack(dependencies, effect, warn));
    case 'guest_packages':
      return warn(stayingPackages(effect));
    case 'guest_name':
      return warn(stayingName(effect));
    case 'guest_change':
      return warn(stayingChange(effect));
    case 'backup_hook':
      return tellHook(dependencies.hooks, effect, { signal, log, warn });
    case 'orphaned_files':
      return patiently(signal, () => removeOrphanedFiles(dependencies, effect, signal, warn));
  }
}

/** A transient domain may stop at any moment, and takes what libvirt knows of the state with it. */
async function removeState(
  dependencies: WorkflowDependencies,
  effect: Extract<Effect, { type: 'automatic_state' }>,
  signal: AbortSignal,
  { warn, pending }: { warn: Warn; pending: PendingAnswers },
): Promise<void> {
  const { log, mergeBandwidthMiB: bandwidthMiB } = dependencies;
  const settle = (left: readonly LeftImage[]) => pending.settle(left, warn);
  const layers = { signal, warn, settle };
  const settled = (state: typeof effect) =>
    patiently(signal, () => settleForgotten(dependencies, state, layers));
  const state = await settled(effect);
  await noteMerging(state.overlays, 'merging');
  const beforePivot = (path: string) =>
    noteMerging(
      state.overlays.filter(layer => layer.path === path),
      'last_moment',
    );
  const options = { signal, log, warn, bandwidthMiB, beforePivot, settle };
  await removeAutomaticState(dependencies, state, options);
  await settled(state);
  await forgetMerging(state.overlays);
}
