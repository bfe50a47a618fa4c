/**
 * Lending by a saved state (specification 3.1): one state of all disks, made with the first loan by the same means as any
 * state, merged with the last one. What is attached is the layer that it froze. A template lends its files themselves.
 */

import type { Domain } from '@virtkeep/node-libvirt';
import { hasKey, reasonOf } from '@virtkeep/shared/errors';
import type { LentLayer } from '../../domain-xml/index.ts';
import type { Instant } from '../../snapshots/index.ts';
import {
  LENDING_STATE,
  loadStates,
  markedBelow,
  mergeState,
  noteLent,
  type SavedState,
  savedStateId,
} from '../../snapshots/index.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { makeState, prepareState } from '../snapshot/create.ts';
import type { DiskFreezer, FreezerOptions, Lender } from './freezer.ts';

const DESCRIPTION = 'Disks of this VM are attached to other VMs as they were at this moment.';

/** Lending by a saved state of libvirt: what a borrower gets is the layer that it froze. */
export function stateFreezer(dependencies: WorkflowDependencies): DiskFreezer {
  const stateOf = async ({ id }: Lender): Promise<SavedState | undefined> => {
    const states = await loadStates(await dependencies.libvirt().domainByUuid(id));
    return states.find(({ name }) => name === LENDING_STATE);
  };
  const find = async (lender: Lender): Promise<Instant | null> => {
    const state = await stateOf(lender);
    return state ? instantOf(lender, state) : null;
  };
  return {
    kind: 'state',
    serves: async () => true,
    find,

    async freeze(lender, context, allowNetworkLayers) {
      if (lender.template || lender.disks.every(disk => disk.readonly)) return null;
      return (await find(lender)) ?? make(dependencies, { lender, allowNetworkLayers }, context, stateOf);
    },

    async sourceOf(lender, { targetDev, path, format, block, readonly }) {
      if (lender.template || readonly) return { path, format, block };
      const state = await stateOf(lender);
      const frozen = state?.overlays[targetDev] === undefined ? undefined : state.frozen[targetDev];
      if (frozen === undefined) return null;
      const frozenFormat = state!.frozenFormats?.[targetDev] ?? 'raw';
      return { path: frozen, format: frozenFormat, block: frozen.startsWith('/dev/') };
    },

    giveBack: async () => {},
    cloneExists: async () => false,

    release: (lender, options) => releaseState(dependencies, lender.id, options),
  };
}

/** Merges the state of lent disks. One that cannot be merged now is told, and stays, whole, to the reconciler; nobody is held for it. */
export async function releaseState(
  dependencies: WorkflowDependencies,
  ownerId: string,
  { signal, log, warn, settle }: FreezerOptions,
): Promise<void> {
  const goal = { domainId: ownerId, name: LENDING_STATE, countsAsDeletion: false };
  const bandwidthMiB = dependencies.mergeBandwidthMiB;
  const options = { signal, log, warn, bandwidthMiB, ...(settle ? { settle } : {}) };
  try {
    await mergeState(dependencies, goal, options);
  } catch (error) {
    const isListed = () => dependencies.libvirt().domain(ownerId).findSnapshot(LENDING_STATE);
    if (!isRefusal(error) || !(await isListed())) throw error;
    // nothing was begun: the reconciler looks again, and nothing waits for it
    warn(reasonOf(error));
  }
}

/** The merge was not tried, as things are now. What was tried and failed is tried again. */
const isRefusal = (error: unknown): boolean =>
  hasKey(error, 'image_use_unknown', 'pool_no_space') ||
  (hasKey(error, 'snapshot_remove_failed') && error.cause === undefined);

async function make(
  dependencies: WorkflowDependencies,
  { lender, allowNetworkLayers }: { lender: Lender; allowNetworkLayers: boolean },
  context: OperationContext,
  stateOf: (lender: Lender) => Promise<SavedState | undefined>,
): Promise<Instant> {
  const wish = {
    domainId: lender.id,
    name: LENDING_STATE,
    description: DESCRIPTION,
    memory: false,
    requireConsistency: false,
    allowNetworkLayers,
  };
  const prepared = await prepareState(dependencies, wish, context);
  const handle = await makeState(wish, context, prepared);
  const state = (await stateOf(lender))!;
  await noteLayers(prepared.target.domain, state);
  // from here on the loan, declared before, takes it back: never while somebody reads what it froze
  handle.keep();
  return instantOf(lender, state);
}

/** Notes what the owner writes to from now on, with the files below as they are: a write to one of them is seen then. */
async function noteLayers(domain: Domain, { overlays }: SavedState): Promise<void> {
  const lentLayers: LentLayer[] = [];
  for (const path of Object.values(overlays)) {
    const below = await markedBelow(path);
    if (below) lentLayers.push({ path, below: below.path, mark: below.mark });
  }
  await noteLent(domain, lentLayers);
}

function instantOf({ id }: Lender, state: SavedState): Instant {
  return { id: savedStateId(id, state), name: state.name };
}
