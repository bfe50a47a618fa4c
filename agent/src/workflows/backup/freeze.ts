/** The instant of the backup: one state of all disks, quiesced when the guest's agent answers, else with memory. */
import { dirname } from 'node:path';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Manifest } from '../../archive/index.ts';
import { probeAgent } from '../../guest/index.ts';
import {
  type AutomaticState,
  createAutomaticState,
  planAutomaticState,
  type StateMode,
  type StatePlan,
} from '../../snapshots/index.ts';
import type { EffectHandle, OperationContext } from '../context.ts';
import type { BackupFacts } from './facts.ts';

export interface FrozenInstant {
  consistency: Manifest['states'][number]['consistency'];
  /** Null when no state was needed: the VM is off, or nothing of it that is copied can be written. */
  automatic: { handle: EffectHandle; memoryPath: string | null } | null;
  time: Date;
}

/** How long a guest that will not thaw may hold the operation; afterwards the clean-up goes on trying. */
const THAW_TIMEOUT_MS = 120_000;

/**
 * Freezes the VM's disks, by the rules of the specification (2.7, 3.2): off → nothing to do; running with an answering
 * agent → quiesced, without memory; otherwise → with memory, while the guest runs on. Only a paused VM, and one whose
 * passed-through devices forbid saving its memory, gets a state that is neither.
 * @throws VirtkeepError consistency_unavailable, snapshot_failed, guest_thaw_failed, canceled
 */
export async function freeze(
  context: OperationContext,
  facts: BackupFacts,
  requireConsistency: boolean,
  spareDirectory: string,
): Promise<FrozenInstant> {
  const writable = facts.content.disks.filter(disk => disk.writable);
  if (facts.power === 'off' || writable.length === 0)
    return { consistency: 'off', automatic: null, time: new Date() };
  if (facts.power === 'paused') return paused(context, facts, requireConsistency, spareDirectory);
  const refusal = await whyNotQuiesced(facts);
  if (refusal === null) {
    try {
      return await attempt(context, facts, 'quiesced', spareDirectory);
    } catch (error) {
      if (!hasKey(error, 'snapshot_failed')) throw error;
      if (requireConsistency) throw unavailable(facts, error.params.reason ?? reasonOf(error), error);
      context.warn(`The guest could not be quiesced (${error.params.reason}); its memory was saved instead.`);
    }
  } else if (requireConsistency) throw unavailable(facts, refusal);
  try {
    return await attempt(context, facts, 'memory', spareDirectory);
  } catch (error) {
    if (!hasKey(error, 'snapshot_failed') || facts.config.hostdevs.length === 0) throw error;
    context.warn(
      `The memory could not be saved (${error.params.reason}); the backup is as after a power cut.`,
    );
    return attempt(context, facts, 'disks', spareDirectory);
  }
}

/**
 * A paused guest writes nothing, so its disks alone are frozen. Its memory is not saved: QEMU then gives up its disks
 * until the guest runs again (block-commit answers "Block node is read-only", measured), so the state could not be
 * merged back without letting the guest run.
 */
async function paused(
  context: OperationContext,
  facts: BackupFacts,
  requireConsistency: boolean,
  spareDirectory: string,
): Promise<FrozenInstant> {
  if (requireConsistency) throw unavailable(facts, 'the VM is paused');
  context.warn('The VM is paused; the backup is as after a power cut at that moment.');
  return attempt(context, facts, 'disks', spareDirectory);
}

function unavailable(facts: BackupFacts, reason: string, cause?: unknown): VirtkeepError {
  return new VirtkeepError('consistency_unavailable', { domain: facts.config.name, reason }, { cause });
}

async function whyNotQuiesced(facts: BackupFacts): Promise<string | null> {
  if (facts.config.agentChannel === 'absent') return 'the VM has no channel for an agent';
  const probe = await probeAgent(facts.domain);
  return probe.answers ? null : probe.reason;
}

async function attempt(
  context: OperationContext,
  facts: BackupFacts,
  mode: StateMode,
  spareDirectory: string,
): Promise<FrozenInstant> {
  const plan = planFor(context.id, facts, mode, spareDirectory);
  const handle = context.effects.begin({ type: 'automatic_state', ...asState(plan, facts) }, 'always');
  try {
    if (mode === 'quiesced') await quiesced(context, facts, plan);
    else await createAutomaticState(facts.domain, plan, context.signal, context.progress);
  } catch (error) {
    if (hasKey(error, 'snapshot_failed')) await handle.undo(AbortSignal.timeout(THAW_TIMEOUT_MS));
    throw error;
  }
  const consistency = mode === 'disks' ? 'crash' : mode;
  return { consistency, automatic: { handle, memoryPath: plan.memoryPath }, time: new Date() };
}

/** libvirt freezes and thaws within the one call; what it leaves frozen when it dies in between, we thaw. */
async function quiesced(context: OperationContext, facts: BackupFacts, plan: StatePlan): Promise<void> {
  const frozen = context.effects.begin({ type: 'frozen_guest', domainId: facts.config.uuid }, 'always');
  try {
    await createAutomaticState(facts.domain, plan, context.signal, context.progress);
  } finally {
    await frozen.undo(AbortSignal.timeout(THAW_TIMEOUT_MS));
  }
}

function planFor(
  operationId: string,
  facts: BackupFacts,
  mode: StateMode,
  spareDirectory: string,
): StatePlan {
  const copied = new Map(facts.content.disks.map(disk => [disk.config.targetDev, disk]));
  const disks = facts.config.disks.map(disk => {
    const plan = copied.get(disk.targetDev);
    return {
      targetDev: disk.targetDev,
      path: disk.path ?? '',
      block: disk.type === 'block',
      wanted: plan?.writable ?? false,
    };
  });
  const beside = disks.find(disk => disk.wanted && !disk.block);
  const spare = beside ? dirname(beside.path) : spareDirectory;
  return planAutomaticState(facts.config.name, operationId, mode, disks, spare);
}

function asState(plan: StatePlan, facts: BackupFacts): AutomaticState {
  return {
    domainId: facts.config.uuid,
    name: plan.name,
    overlays: plan.disks.flatMap(({ targetDev, overlayPath }) =>
      overlayPath === null ? [] : [{ targetDev, path: overlayPath }],
    ),
    ...(plan.memoryPath === null ? {} : { memoryPath: plan.memoryPath }),
  };
}
