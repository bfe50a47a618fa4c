/**
 * Brings a domain back to a saved state: what came after on its disks is lost, other states stay.
 *
 * check → prepare → stop → define → start → clean. Until the commit, when it runs again, everything can be taken back,
 * also by the next run of the agent: a crash or a cancel ends in the world before, the guest started anew. After it, in
 * the one of the state; only unused overlays are left to be removed.
 */
import { dirname } from 'node:path';
import { DomainXml } from '@virtkeep/node-libvirt';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { RevertSnapshotRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { lastingMetadata } from '../../domain-xml/index.ts';
import { fromDomain } from '../../libvirt/domains.ts';
import {
  defineReverted,
  isInternal,
  makeOverlays,
  planRevert,
  type RevertPlan,
  revertedDomain,
  revertedMetadata,
  revertRefusal,
  type SavedState,
  savedStateId,
  startReverted,
  stopDomain,
  writeMetadata,
} from '../../snapshots/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { requireLayerPools } from '../domain/away-layers.ts';
import { setResumedClock } from '../domain/clock.ts';
import { requireLasting } from '../domain/domain-kind.ts';
import { refuseLent } from '../domain/refuse-lent.ts';
import { findTarget, requireState, type Target } from '../domain/target.ts';
import { refuseWithClonesAnywhere } from '../family/clones-elsewhere.ts';
import {
  definedFirmware,
  exchangeFirmware,
  type FormerFirmware,
  keptFirmwarePaths,
} from '../firmware/state-firmware.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const REVERT_SNAPSHOT_STEPS = ['check', 'prepare', 'stop', 'define', 'start', 'clean'] as const;

const CLEAN_TIMEOUT_MS = 120_000;

/** The workflow. Result: `{"power_state":"running|off"}`. */
export function revertSnapshotWorkflow(
  dependencies: WorkflowDependencies,
  request: RevertSnapshotRequest,
): Workflow {
  return context =>
    run(dependencies, request, context).catch(error => {
      context.signal.throwIfAborted();
      throw fromDomain(error, request.domainId, 'revert_snapshot');
    });
}

async function run(
  dependencies: WorkflowDependencies,
  request: RevertSnapshotRequest,
  context: OperationContext,
): Promise<void> {
  const { target, state } = await context.step('check', () => check(dependencies, request, context));
  if (isInternal(state)) return context.step('start', () => revertInternal(target, state, context));
  const plan = planRevert(target.picture, state, context.id);
  const leftover = { type: 'unused_layers', domainId: request.domainId, paths: plan.unused } as const;
  const unused = context.effects.begin(leftover, 'always');
  const statesDeleted = new Date();
  const firmware = await context.step('prepare', () =>
    prepare(dependencies, target, { state, plan, statesDeleted }, context),
  );
  await exchange(dependencies, target, { state, plan, statesDeleted, firmware }, context).catch(error => {
    throw hasKey(error, 'canceled', 'interrupted') ? error : failed(target.domain.name, state, error);
  });
  await context.step('clean', async () => {
    await unused.undo(AbortSignal.timeout(CLEAN_TIMEOUT_MS));
    if (state.memory === 'external') await setResumedClock(context, target.domain);
  });
}

async function check(
  dependencies: WorkflowDependencies,
  { domainId, snapshotId }: RevertSnapshotRequest,
  context: OperationContext,
): Promise<{ target: Target; state: SavedState }> {
  const target = await findTarget(dependencies, domainId, context);
  const { name, uuid } = target.domain;
  const { metadata } = target.picture;
  await refuseLent(dependencies.libvirt(), metadata, name, 'reverted');
  // an internal state comes back into the very files that clones stand on
  await refuseWithClonesAnywhere(dependencies, { uuid, name, metadata }, 'reverted', context.signal);
  requireLasting({ name, ...target.picture }, 'reverted');
  const state = requireState(target, snapshotId);
  const reason = revertRefusal(target.picture, state);
  if (reason !== null) throw new VirtkeepError('snapshot_in_use', { domain: name, reason });
  return { target, state };
}

interface Reverting {
  state: SavedState;
  plan: RevertPlan;
  /** What the reverted domain's metadata say of deletions. */
  statesDeleted: Date;
}

/** Declares how everything was, then makes the overlays. */
async function prepare(
  dependencies: WorkflowDependencies,
  { domain, picture }: Target,
  { state, plan, statesDeleted }: Reverting,
  context: OperationContext,
): Promise<FormerFirmware> {
  // those of devices lie beside no file that was seen to be there
  const away = plan.overlays.filter(({ path, backing }) => dirname(path) !== dirname(backing.path));
  const paths = away.map(({ path }) => path);
  await requireLayerPools(dependencies, paths, context.signal);
  const firmware = { ...(await definedFirmware(dependencies, domain)), key: context.id };
  const former = {
    domainId: domain.uuid,
    state: state.name,
    overlays: plan.overlays.map(({ targetDev, path }) => ({ targetDev, path })),
    formerOverlays: state.overlays,
    formerDefinition: await domain.xml(DomainXml.INACTIVE | DomainXml.SECURE),
    formerCurrent: picture.states.find(({ current }) => current)?.name ?? null,
    wasRunning: picture.power === 'running',
    statesDeleted: statesDeleted.toISOString(),
    firmware,
  };
  for (const path of Object.values(keptFirmwarePaths(dependencies, firmware.domainId, firmware.key)))
    context.effects.begin({ type: 'file', path }, 'always');
  context.effects.begin({ type: 'revert', ...former }, 'failure');
  await makeOverlays(plan, context.signal);
  return firmware;
}

async function exchange(
  dependencies: WorkflowDependencies,
  { domain, picture }: Target,
  { state, plan, statesDeleted, firmware }: Reverting & { firmware: FormerFirmware },
  context: OperationContext,
): Promise<void> {
  const libvirt = dependencies.libvirt();
  const metadata = revertedMetadata(picture, plan, statesDeleted);
  const reverted = revertedDomain(state, plan, metadata, firmware);
  await context.step('stop', () => stopDomain(domain));
  await context.step('define', async () => {
    await defineReverted(libvirt, domain, { state, plan }, reverted);
    // after the definition: the undo takes it for the sign that the firmware's state may be another one
    const unknown = await exchangeFirmware(dependencies, firmware, savedStateId(domain.uuid, state));
    if (unknown !== null) context.warn(unknown);
  });
  await context.step('start', async () => {
    const wasRunning = picture.power === 'running';
    const runs = await startReverted(libvirt, domain, state, { ...reverted, wasRunning });
    context.commit({ $case: 'revertSnapshot', value: { powerState: runs ? 'running' : 'off' } });
  });
}

/** libvirt reverts internal states itself, in one call. */
async function revertInternal(
  { domain, picture }: Target,
  state: SavedState,
  context: OperationContext,
): Promise<void> {
  try {
    await domain.snapshot(state.name).revert(0, { timeoutMs: 0 });
    await writeMetadata(domain, lastingMetadata({ ...picture.metadata, statesDeleted: new Date() }));
    const powerState = (await domain.isActive()) ? 'running' : 'off';
    context.commit({ $case: 'revertSnapshot', value: { powerState } });
  } catch (error) {
    throw failed(domain.name, state, error);
  }
}

function failed(domain: string, state: SavedState, error: unknown): VirtkeepError {
  const params = { domain, state: state.name, reason: reasonOf(error) };
  return new VirtkeepError('revert_failed', params, { cause: error });
}
