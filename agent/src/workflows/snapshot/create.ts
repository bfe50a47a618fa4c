/** Makes a saved state by hand: all disks at one instant, with memory or quiesced. What fails leaves nothing. */
import { dirname } from 'node:path';
import { DomainStateCode } from '@virtkeep/node-libvirt';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { CreateSnapshotRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { MAX_STATE_NAME_BYTES } from '@virtkeep/shared/state-name';
import { MiB } from '@virtkeep/shared/units';
import { readLayers } from '../../disks/index.ts';
import { type DiskConfig, type DomainConfig, parseDomain } from '../../domain-xml/index.ts';
import { probeAgent } from '../../guest/index.ts';
import { fromDomain } from '../../libvirt/domains.ts';
import { requireSpace } from '../../pools/index.ts';
import {
  AUTOMATIC_PREFIX,
  blockJobOf,
  createState,
  type DiskToFreeze,
  LENDING_STATE,
  loadStates,
  planState,
  type StateMode,
  type StatePlan,
  savedStateMessage,
} from '../../snapshots/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { baseDirectory, checkLayerPlace } from '../domain/away-layers.ts';
import { type DiskWithLayers, refuseEncrypted, requireLasting } from '../domain/domain-kind.ts';
import { refuseFullChain } from '../domain/full-chain.ts';
import { refuseLent } from '../domain/refuse-lent.ts';
import { findTarget, refuseForClones, type Target } from '../domain/target.ts';
import { resolveVolumes } from '../domain/volumes.ts';
import type { EffectHandle } from '../effect.ts';
import { keepFirmwareOfState } from '../firmware/state-firmware.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const CREATE_SNAPSHOT_STEPS = ['check', 'create'] as const;

/** How long a guest that will not thaw may hold the operation; afterwards the clean-up goes on trying. */
const THAW_TIMEOUT_MS = 120_000;

/**
 * The workflow. Result: `{"snapshot": SavedState as JSON}`.
 * @throws VirtkeepError invalid_field, for a name that no state can have
 */
export function createSnapshotWorkflow(
  dependencies: WorkflowDependencies,
  request: CreateSnapshotRequest,
): Workflow {
  requireStateName(request.name);
  return context =>
    run(dependencies, request, context).catch(error => {
      context.signal.throwIfAborted();
      throw fromDomain(error, request.domainId, 'create_snapshot');
    });
}

function requireStateName(name: string): void {
  const refuse = (reason: string) => new VirtkeepError('invalid_field', { field: 'name', reason });
  if (name === '' || Buffer.byteLength(name) > MAX_STATE_NAME_BYTES)
    throw refuse(`must have 1 to ${MAX_STATE_NAME_BYTES} bytes in UTF-8`);
  // libvirt keeps a file of that name
  if (name.startsWith('.') || name.includes('/') || !/^\P{Cc}*$/u.test(name))
    throw refuse('must not begin with a dot, nor contain "/" or control characters');
  if (name.startsWith(AUTOMATIC_PREFIX))
    throw refuse(`must not begin with "${AUTOMATIC_PREFIX}": such states are removed`);
  if (name === LENDING_STATE) throw refuse('is that of the state that lent disks have');
}

async function run(
  dependencies: WorkflowDependencies,
  request: CreateSnapshotRequest,
  context: OperationContext,
): Promise<void> {
  const checked = await context.step('check', async () => {
    const prepared = await prepareState(dependencies, request, context);
    const { domain, picture } = prepared.target;
    await refuseLent(dependencies.libvirt(), picture.metadata, domain.name, 'given a saved state');
    await refuseForClones(dependencies, prepared.target, 'given a saved state');
    return prepared;
  });
  await context.step('create', async () => {
    await makeState(request, context, checked);
    const { domain } = checked.target;
    await keepFirmwareOfState(dependencies, domain, request.name);
    const created = (await loadStates(domain)).find(({ name }) => name === request.name);
    if (!created)
      throw new VirtkeepError('snapshot_failed', { domain: domain.name, reason: 'it is not there' });
    const snapshot = savedStateMessage(request.domainId, created);
    context.commit({ $case: 'createSnapshot', value: { snapshot } });
  });
}

/** What a state is made of: of one that a user asked for, or of the one for lent disks. */
export type StateWish = Pick<
  CreateSnapshotRequest,
  'domainId' | 'name' | 'description' | 'memory' | 'requireConsistency' | 'allowNetworkLayers'
>;

export interface PreparedState {
  target: Target;
  mode: StateMode;
  disks: DiskToFreeze[];
  spareDirectory: string;
}

/**
 * Looks at the domain and decides how its state is made; changes nothing.
 * @throws VirtkeepError domain_not_found, domain_transient, domain_memory_saved, snapshot_name_taken, snapshot_in_use,
 *   snapshot_failed, power_state_conflict, consistency_unavailable, layers_on_network, pool_no_space, and the refusals of pools
 */
export async function prepareState(
  dependencies: WorkflowDependencies,
  request: StateWish,
  context: OperationContext,
): Promise<PreparedState> {
  const target = await findTarget(dependencies, request.domainId, context);
  const { domain, picture } = target;
  requireLasting({ name: domain.name, ...picture }, 'given a saved state');
  if (picture.states.some(({ name }) => name === request.name))
    throw new VirtkeepError('snapshot_name_taken', { domain: domain.name, name: request.name });
  const busy = blockJobOf(picture);
  if (busy !== null) throw new VirtkeepError('snapshot_in_use', { domain: domain.name, reason: busy });
  const parsed = parseDomain(await domain.xml(), domain.name);
  const config = { ...parsed, disks: await resolveVolumes(dependencies.libvirt(), parsed.disks) };
  const disks = disksToFreeze(config);
  const frozen = config.disks.filter((_, index) => disks[index]!.included);
  const layered = await withLayers(frozen);
  refuseEncrypted(config.name, layered, 'given a saved state, whose layer would be in plain text');
  // the state of lent disks goes with the last loan
  if (request.name !== LENDING_STATE) refuseFullChain(config.name, layered);
  const mode = await chooseMode(target, config, request, context);
  const beside = disks.find(disk => disk.included && !disk.block);
  const pools = await dependencies.pools(context.signal);
  const spareDirectory = beside ? dirname(beside.path) : baseDirectory(pools, dependencies.nodeName);
  if (!spareDirectory)
    throw new VirtkeepError('snapshot_failed', {
      domain: config.name,
      reason: 'there is no directory for its files; set a base data pool',
    });
  const place = {
    domain: config.name,
    disks: disks.map(({ included, block }) => ({ written: included, block })),
    directory: spareDirectory,
    period: 'from now on',
    allowNetwork: request.allowNetworkLayers,
  };
  await checkLayerPlace(place, context.warn);
  if (mode === 'memory')
    await requireSpace({ name: spareDirectory, path: spareDirectory }, config.memoryMiB * MiB);
  return { target, mode, disks, spareDirectory };
}

/** What cannot be read is refused by who has to read it. */
function withLayers(disks: readonly DiskConfig[]): Promise<DiskWithLayers[]> {
  return Promise.all(
    disks.map(async disk => ({
      ...disk,
      layers: await readLayers(disk.path ?? '', disk.format ?? 'raw').catch(() => []),
    })),
  );
}

/** @throws VirtkeepError snapshot_failed for a disk that can be written and not frozen */
function disksToFreeze({ name, disks }: DomainConfig): DiskToFreeze[] {
  return disks.map(disk => {
    const included = disk.device === 'disk' && !disk.readonly && !disk.shareable && !disk.transient;
    const format = disk.format ?? 'raw';
    const hasPath = disk.path !== undefined && (disk.type === 'file' || disk.type === 'block');
    if (included && (!hasPath || (format !== 'qcow2' && format !== 'raw')))
      throw new VirtkeepError('snapshot_failed', {
        domain: name,
        reason: `its disk ${disk.targetDev} (${disk.source}) is neither a file nor a device`,
      });
    return {
      targetDev: disk.targetDev,
      path: disk.path ?? '',
      block: disk.type === 'block',
      included,
    };
  });
}

/** @throws VirtkeepError power_state_conflict, consistency_unavailable */
async function chooseMode(
  { domain }: Target,
  config: DomainConfig,
  { memory, requireConsistency }: StateWish,
  context: OperationContext,
): Promise<StateMode> {
  const { state } = await domain.state();
  const isRunning = state === DomainStateCode.RUNNING || state === DomainStateCode.BLOCKED;
  if (memory) {
    if (isRunning) return 'memory';
    const power = state === DomainStateCode.PAUSED ? 'suspended' : 'off';
    throw new VirtkeepError('power_state_conflict', {
      domain: config.name,
      state: power,
      action: 'saved with its memory',
    });
  }
  if (state === DomainStateCode.SHUTOFF || state === DomainStateCode.CRASHED) return 'disks';
  const refusal = isRunning ? await whyNotQuiesced(domain, config) : 'the VM is not running';
  if (refusal === null) return 'quiesced';
  if (requireConsistency)
    throw new VirtkeepError('consistency_unavailable', { domain: config.name, reason: refusal });
  warnOfCrash(context, refusal);
  return 'disks';
}

async function whyNotQuiesced(domain: Target['domain'], config: DomainConfig): Promise<string | null> {
  if (config.agentChannel === 'absent') return 'the VM has no channel for an agent';
  const probe = await probeAgent(domain);
  return probe.answers ? null : probe.reason;
}

function warnOfCrash(context: OperationContext, reason: string): void {
  context.warn(`The guest could not be quiesced (${reason}); the state is as after a power cut.`);
}

/**
 * Makes the state, declared in the journal before: undone when the operation fails, unless the handle is kept.
 * @throws VirtkeepError snapshot_failed, power_state_conflict, consistency_unavailable, guest_thaw_failed, canceled
 */
export async function makeState(
  request: StateWish,
  context: OperationContext,
  checked: PreparedState,
): Promise<EffectHandle> {
  const { mode, target } = checked;
  try {
    return await attempt(request, context, checked);
  } catch (error) {
    const isOther = hasKey(error, 'power_state_conflict');
    if (mode !== 'quiesced' || isOther || context.signal.aborted) throw error;
    const reason = reasonOf(error);
    if (request.requireConsistency)
      throw new VirtkeepError(
        'consistency_unavailable',
        { domain: target.domain.name, reason },
        { cause: error },
      );
    warnOfCrash(context, reason);
    return attempt(request, context, { ...checked, mode: 'disks' });
  }
}

async function attempt(
  { name, description }: StateWish,
  context: OperationContext,
  { target: { domain }, mode, disks, spareDirectory }: PreparedState,
): Promise<EffectHandle> {
  const plan = planState(domain.name, { name, operationId: context.id, mode }, disks, spareDirectory);
  const handle = context.effects.begin(
    { type: 'automatic_state', ...effectOf(domain.uuid, plan) },
    'failure',
  );
  try {
    await thawedAfter(context, domain.uuid, mode, () => createState(domain, plan, description, context));
    return handle;
  } catch (error) {
    if (!context.signal.aborted) await handle.undo(AbortSignal.timeout(THAW_TIMEOUT_MS));
    throw error;
  }
}

/** A quiesced guest is thawed before anything else is done, be it merging what was made of the state. */
async function thawedAfter(
  { effects }: OperationContext,
  domainId: string,
  mode: StateMode,
  work: () => Promise<void>,
): Promise<void> {
  if (mode !== 'quiesced') return work();
  const frozen = effects.begin({ type: 'frozen_guest', domainId }, 'always');
  try {
    await work();
  } finally {
    await frozen.undo(AbortSignal.timeout(THAW_TIMEOUT_MS));
  }
}

function effectOf(domainId: string, plan: StatePlan) {
  return {
    domainId,
    name: plan.name,
    noted: true,
    overlays: plan.disks.flatMap(({ targetDev, overlayPath }) =>
      overlayPath === null ? [] : [{ targetDev, path: overlayPath }],
    ),
    ...(plan.memoryPath === null ? {} : { memoryPath: plan.memoryPath }),
  };
}
