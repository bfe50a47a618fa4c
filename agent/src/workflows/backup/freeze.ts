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
 * How the VM's disks are to be frozen, by the rules of the specification (2.7, 3.2): off → not at all (null); running
 * with an answering agent → quiesced, without memory; otherwise → with memory, while the guest runs on.
 *
 * A paused guest writes nothing, so its disks alone are frozen. Its memory is not saved: QEMU then gives up its disks
 * until the guest runs again (block-commit answers "Block node is read-only", measured), so the state could not be
 * merged back without letting the guest run.
 * @throws VirtkeepError consistency_unavailable when it is required and the guest cannot be quiesced
 */
export async function chooseMode(facts: BackupFacts, requireConsistency: boolean): Promise<StateMode | null> {
  if (facts.power === 'off' || !facts.content.disks.some(disk => disk.writable)) return null;
  const refusal = facts.power === 'paused' ? 'the VM is paused' : await whyNotQuiesced(facts);
  if (refusal !== null && requireConsistency) throw unavailable(facts, refusal);
  if (facts.power === 'paused') return 'disks';
  return refusal === null ? 'quiesced' : 'memory';
}

/**
 * Freezes the disks in the chosen way. A guest that refuses to be quiesced is saved with its memory; only a VM whose
 * passed-through devices forbid that gets neither.
 * @throws VirtkeepError consistency_unavailable, snapshot_failed, guest_thaw_failed, canceled
 */
export async function freeze(
  context: OperationContext,
  facts: BackupFacts,
  mode: StateMode | null,
  options: { requireConsistency: boolean; spareDirectory: string },
): Promise<FrozenInstant> {
  if (mode === null) return { consistency: 'off', automatic: null, time: new Date() };
  if (mode === 'disks') context.warn('The VM is paused; the backup is as after a power cut at that moment.');
  try {
    return await attempt(context, facts, mode, options.spareDirectory);
  } catch (error) {
    const next = nextMode(mode, facts);
    if (!hasKey(error, 'snapshot_failed') || next === null) throw error;
    const reason = error.params.reason ?? reasonOf(error);
    if (options.requireConsistency) throw unavailable(facts, reason, error);
    if (next === 'memory') context.warn(`The guest could not be quiesced (${reason}); its memory was saved.`);
    else context.warn(`The memory could not be saved (${reason}); the backup is as after a power cut.`);
    return next === 'memory'
      ? freeze(context, facts, next, options)
      : attempt(context, facts, next, options.spareDirectory);
  }
}

function nextMode(mode: StateMode, facts: BackupFacts): StateMode | null {
  if (mode === 'quiesced') return 'memory';
  return mode === 'memory' && facts.config.hostdevs.length > 0 ? 'disks' : null;
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

/** Directory for what has no disk beside which it could lie: the memory, and overlays of devices. */
export function spareDirectoryOf(facts: BackupFacts, otherwise: string): string {
  const beside = facts.content.disks.find(disk => disk.writable && !disk.block);
  return beside ? dirname(beside.path) : otherwise;
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
  return planAutomaticState(facts.config.name, operationId, mode, disks, spareDirectory);
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
