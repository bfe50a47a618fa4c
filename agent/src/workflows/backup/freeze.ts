/** The instant of the backup: one state of all disks, quiesced when the guest's agent answers, else with memory. */
import { dirname } from 'node:path';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Manifest } from '../../archive/index.ts';
import { readLayers } from '../../disks/index.ts';
import { isLent } from '../../domain-xml/index.ts';
import { probeAgent } from '../../guest/index.ts';
import {
  type AutomaticState,
  createAutomaticState,
  createState,
  incrementTag,
  planAutomaticState,
  planState,
  type StateMode,
  type StatePlan,
} from '../../snapshots/index.ts';
import { timeStamp } from '../archives/file-name.ts';
import type { OperationContext } from '../context.ts';
import { withMarks } from '../domain/forgotten-layers.ts';
import type { EffectHandle } from '../effect.ts';
import type { BackupFacts } from './facts.ts';

export interface FrozenInstant {
  consistency: Manifest['states'][number]['consistency'];
  /** Null when no state was needed: the VM is off, or nothing of it that is copied can be written. */
  automatic: {
    handle: EffectHandle;
    /** As libvirt knows it. */
    stateName: string;
    /** Name of a state that stays; null for one that goes when the backup ends. */
    name: string | null;
    memoryPath: string | null;
  } | null;
  time: Date;
}

/** A state that stays on the VM, so that the backup can be extended from it. */
export interface LastingState {
  backupId: string;
  /** Of the state in the archive. */
  number: number;
}

export interface FreezeOptions {
  requireConsistency: boolean;
  spareDirectory: string;
  /** Null: the state goes when the backup ends. */
  lasting: LastingState | null;
}

/** How long a guest that will not thaw may hold the operation; afterwards the clean-up goes on trying. */
const THAW_TIMEOUT_MS = 120_000;

/**
 * How the VM's disks are to be frozen, by the rules of the specification (2.7, 3.2): off → not at all (null), or the
 * disks alone when the state stays; running with an answering agent → quiesced, without memory; otherwise → with memory,
 * while the guest runs on.
 *
 * A paused guest writes nothing, so its disks alone are frozen. Its memory is not saved: QEMU then gives up its disks
 * until the guest runs again (block-commit answers "Block node is read-only", measured), so the state could not be
 * merged back without letting the guest run.
 * @throws VirtkeepError consistency_unavailable when it is required and the guest cannot be quiesced
 */
export async function chooseMode(
  facts: BackupFacts,
  { requireConsistency, lasting }: { requireConsistency: boolean; lasting: boolean },
): Promise<StateMode | null> {
  if (!facts.content.disks.some(disk => disk.writable)) return null;
  if (facts.memorySaved && requireConsistency) throw unavailable(facts, 'its memory is saved');
  if (facts.power === 'off') return lasting ? 'disks' : null;
  const refusal = facts.power === 'paused' ? 'the VM is paused' : await whyNotQuiesced(facts);
  if (refusal !== null && requireConsistency) throw unavailable(facts, refusal);
  if (facts.power === 'paused') return 'disks';
  if (refusal === null) return 'quiesced';
  // a VM goes on from its memory only with the devices that it had, and a disk of another VM does not come with it
  return borrows(facts) ? 'disks' : 'memory';
}

function borrows({ config }: BackupFacts): boolean {
  return config.disks.some(disk => isLent(disk, config.metadata));
}

/**
 * Freezes the disks in the chosen way. A guest that refuses to be quiesced is saved with its memory; only a VM whose
 * passed-through devices forbid that gets neither.
 * @throws VirtkeepError consistency_unavailable, snapshot_failed, power_state_conflict, guest_thaw_failed, canceled
 */
export async function freeze(
  context: OperationContext,
  facts: BackupFacts,
  mode: StateMode | null,
  options: FreezeOptions,
): Promise<FrozenInstant> {
  if (mode === null)
    return { consistency: facts.memorySaved ? 'crash' : 'off', automatic: null, time: new Date() };
  if (mode === 'disks' && facts.power === 'paused')
    context.warn('The VM is paused; the backup is as after a power cut at that moment.');
  else if (mode === 'disks' && facts.power === 'running')
    context.warn(
      'The guest could not be quiesced and its memory is not saved while it has disks of other VMs; the backup is as after a power cut.',
    );
  try {
    return await attempt(context, facts, mode, options);
  } catch (error) {
    const next = nextMode(mode, facts);
    if (!hasKey(error, 'snapshot_failed') || next === null) throw error;
    const reason = error.params.reason ?? reasonOf(error);
    if (options.requireConsistency) throw unavailable(facts, reason, error);
    if (next === 'memory') context.warn(`The guest could not be quiesced (${reason}); its memory was saved.`);
    else context.warn(`The memory could not be saved (${reason}); the backup is as after a power cut.`);
    return next === 'memory' ? freeze(context, facts, next, options) : attempt(context, facts, next, options);
  }
}

function nextMode(mode: StateMode, facts: BackupFacts): StateMode | null {
  if (mode === 'quiesced') return borrows(facts) ? 'disks' : 'memory';
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
  options: FreezeOptions,
): Promise<FrozenInstant> {
  const { lasting } = options;
  const plan = planFor(context.id, facts, mode, options);
  const effect = { type: 'automatic_state' as const, ...asState(plan, facts) };
  let handle = context.effects.begin(effect, lasting ? 'failure' : 'always');
  try {
    if (mode === 'quiesced') await quiesced(context, facts, plan, lasting);
    else await create(context, facts, plan, lasting);
  } catch (error) {
    if (hasKey(error, 'snapshot_failed')) await handle.undo(AbortSignal.timeout(THAW_TIMEOUT_MS));
    throw error;
  }
  const overlays = await withMarks(effect.overlays, facts.persistent);
  const handleWithMarks = context.effects.begin({ ...effect, overlays }, lasting ? 'failure' : 'always');
  handle.keep();
  handle = handleWithMarks;
  await refuseOtherLayers(facts, plan);
  const consistency = facts.power === 'off' ? 'off' : mode === 'disks' ? 'crash' : mode;
  const { memoryPath } = plan;
  return {
    consistency,
    automatic: { handle, stateName: plan.name, name: lasting && plan.name, memoryPath },
    time: new Date(),
  };
}

function create(
  context: OperationContext,
  { domain }: BackupFacts,
  plan: StatePlan,
  lasting: LastingState | null,
): Promise<void> {
  if (!lasting) return createAutomaticState(domain, plan, context);
  return createState(domain, plan, incrementTag(lasting.backupId, lasting.number), context);
}

/** libvirt freezes and thaws within one call; when it dies in between, the guest stays frozen and is thawed here. */
async function quiesced(
  context: OperationContext,
  facts: BackupFacts,
  plan: StatePlan,
  lasting: LastingState | null,
): Promise<void> {
  const frozen = context.effects.begin({ type: 'frozen_guest', domainId: facts.config.uuid }, 'always');
  try {
    await create(context, facts, plan, lasting);
  } finally {
    await frozen.undo(AbortSignal.timeout(THAW_TIMEOUT_MS));
  }
}

/**
 * Somebody may have changed the layers (by virsh) after the look at them. The files that the state froze must be those that are
 * copied, since the next increment starts from them.
 */
async function refuseOtherLayers(facts: BackupFacts, plan: StatePlan): Promise<void> {
  for (const { targetDev, overlayPath } of plan.disks) {
    const expected = facts.chains.get(targetDev)?.layers.at(-1)?.path;
    if (overlayPath === null || expected === undefined) continue;
    const frozen = (await readLayers(overlayPath, 'qcow2'))[1]?.path;
    if (frozen === expected) continue;
    throw new VirtkeepError('power_state_conflict', {
      domain: facts.config.name,
      state: `not what it was (${targetDev} got another layer)`,
      action: 'backed up while its disks change; start the backup again',
    });
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
  { spareDirectory, lasting }: FreezeOptions,
): StatePlan {
  const copied = new Map(facts.content.disks.map(disk => [disk.config.targetDev, disk]));
  const disks = facts.config.disks.map(disk => {
    const plan = copied.get(disk.targetDev);
    return {
      targetDev: disk.targetDev,
      path: disk.path ?? '',
      block: disk.type === 'block',
      included: plan?.writable ?? false,
    };
  });
  const { name } = facts.config;
  if (!lasting) return planAutomaticState(name, { operationId, mode }, disks, spareDirectory);
  const state = { name: lastingName(facts, new Date()), operationId, mode };
  return planState(name, state, disks, spareDirectory);
}

/** "backup_20261120T232700Z", with "_2" and so on when the VM has a state of that name. */
function lastingName({ states }: BackupFacts, time: Date): string {
  const desiredName = `backup_${timeStamp(time)}`;
  const taken = new Set(states.map(({ name }) => name));
  let name = desiredName;
  for (let count = 2; taken.has(name); count += 1) name = `${desiredName}_${count}`;
  return name;
}

function asState(plan: StatePlan, facts: BackupFacts): AutomaticState {
  return {
    domainId: facts.config.uuid,
    name: plan.name,
    noted: true,
    overlays: plan.disks.flatMap(({ targetDev, overlayPath }) =>
      overlayPath === null ? [] : [{ targetDev, path: overlayPath }],
    ),
    ...(plan.memoryPath === null ? {} : { memoryPath: plan.memoryPath }),
  };
}
