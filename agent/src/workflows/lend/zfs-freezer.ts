/**
 * Lending from zfs (specification 3.1, 4.1 rule 2): the instant is a snapshot of all datasets and volumes of the owner's
 * disks, and each borrower gets a read-only clone of it with an id of its own. It serves domains all of whose disks that
 * can be written lie on zfs; a domain that also has others lends by a saved state, so that all show the same instant.
 */
import { type Domain, DomainStateCode, type Libvirt } from '@virtkeep/node-libvirt';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { probeAgent } from '../../guest/index.ts';
import {
  CLONE_KEYS,
  instantProperties,
  LENDING_STATE,
  releaseZfs,
  snapshotNameOf,
  zfsInstants,
} from '../../snapshots/index.ts';
import { type Clone, cloneIdOf, cloneNameFor, type ZfsDriver, type ZfsPlace } from '../../zfs/index.ts';
import type { OperationContext } from '../context.ts';
import type { DiskFreezer, FreezerOptions, Lender, LenderDisk } from './freezer.ts';

/** How long a guest that will not thaw or go on may hold the operation; afterwards the clean-up goes on trying. */
const UNDO_TIMEOUT_MS = 120_000;
/** How long the guest's agent may take to freeze its file systems; a hanging agent must not hang the loan. */
const FREEZE_TIMEOUT_SEC = 60;
const AGENT_BLOCK = -2;

export interface ZfsFreezerOptions {
  libvirt(): Libvirt;
  zfs: ZfsDriver;
}

/** Lending from zfs: the instant is a snapshot of the datasets, what a borrower gets is a clone of it. */
export function zfsFreezer({ libvirt, zfs }: ZfsFreezerOptions): DiskFreezer {
  const find = async ({ id }: Lender, { signal }: FreezerOptions) =>
    (await zfsInstants(zfs, signal)).get(id) ?? null;
  const clonesOf = (lender: Lender, diskId: string, borrowerId: string, options: FreezerOptions) =>
    findClones(zfs, { owner: lender.id, disk: diskId, borrower: borrowerId }, options);
  return {
    kind: 'zfs',
    find,

    async serves(lender, options) {
      if (lender.template || !(await zfs.isPresent())) return false;
      // also while nothing is mounted, by which the places of its disks are found
      if ((await find(lender, options)) !== null) return true;
      const written = lender.disks.filter(disk => !disk.readonly);
      const places = await Promise.all(written.map(({ path }) => zfs.placeOf(path, options.signal)));
      if (places.length === 0 || places.includes(null)) return false;
      // what was lent before the disks came to zfs is given back the way it was lent
      const domain = await libvirt().domainByUuid(lender.id);
      return (await domain.findSnapshot(LENDING_STATE)) === null;
    },

    async freeze(lender, context) {
      const existing = await find(lender, context);
      if (existing) return existing;
      const written = lender.disks.filter(disk => !disk.readonly);
      const datasets = new Set<string>();
      for (const disk of written) datasets.add((await placeOf(zfs, disk, context.signal)).dataset);
      const targets = written.map(({ targetDev }) => targetDev);
      await atRest(libvirt, lender, context, async () => {
        const properties = instantProperties(lender.id, Math.floor(Date.now() / 1000), targets);
        await zfs.snapshot([...datasets], snapshotNameOf(lender.id), properties, context.signal);
      });
      return find(lender, context);
    },

    async sourceOf(lender, disk, borrowerId, options) {
      const { path, format, block } = disk;
      if (disk.readonly) return { path, format, block };
      const place = await placeOf(zfs, disk, options.signal);
      const instant = await find(lender, options);
      const snapshot = `${place.dataset}@${snapshotNameOf(lender.id)}`;
      if (!instant?.snapshots.includes(snapshot) || !instant.targets.includes(disk.targetDev)) return null;
      const [existing] = await clonesOf(lender, disk.id, borrowerId, options);
      const dataset = existing?.dataset ?? cloneNameFor(place.dataset, newId());
      const named = { owner: lender.id, disk: disk.id, borrower: borrowerId };
      const attached = existing
        ? await zfs.open(existing.dataset, place, options.signal)
        : await zfs.clone(snapshot, place, { dataset, properties: named }, options.signal);
      return { path: attached, format, block, attachedId: cloneIdOf(dataset)! };
    },

    async giveBack(lender, diskId, borrowerId, options) {
      for (const { dataset } of await clonesOf(lender, diskId, borrowerId, options))
        await zfs.destroyClone(dataset, options.signal);
    },

    async cloneExists(lender, diskId, borrowerId, options) {
      return (await clonesOf(lender, diskId, borrowerId, options)).length > 0;
    },

    async release(lender, options) {
      try {
        await releaseZfs(zfs, lender.name, await find(lender, options), options);
      } catch (error) {
        if (!hasKey(error, 'zfs_clone_exists')) throw error;
        // somebody else's clone: the reconciler looks again, and nothing waits for it
        options.log.warn('the state of lent disks stays for a clone', { reason: reasonOf(error) });
      }
    },
  };
}

async function placeOf(zfs: ZfsDriver, disk: LenderDisk, signal: AbortSignal): Promise<ZfsPlace> {
  const place = await zfs.placeOf(disk.path, signal);
  if (place) return place;
  throw new VirtkeepError('zfs_failed', { command: 'list', reason: `${disk.path} is not on zfs any more` });
}

async function findClones(
  zfs: ZfsDriver,
  key: { owner: string; disk: string; borrower: string },
  { signal }: FreezerOptions,
): Promise<Clone[]> {
  const clones = await zfs.clones(CLONE_KEYS, signal);
  return clones.filter(
    ({ dataset, properties: { owner, disk, borrower } }) =>
      cloneIdOf(dataset) !== undefined &&
      owner === key.owner &&
      disk === key.disk &&
      borrower === key.borrower,
  );
}

/**
 * Does the work while the guest writes nothing: its file systems frozen when its agent answers, and the guest suspended
 * for the moment that the snapshots take. Suspending makes QEMU write out what it keeps of qcow2 images in its memory,
 * and makes the snapshots of several pools one instant.
 */
async function atRest(
  libvirt: () => Libvirt,
  { id, active }: Lender,
  context: OperationContext,
  work: () => Promise<void>,
): Promise<void> {
  const domain = await libvirt().domainByUuid(id);
  // a guest that is suspended already writes nothing, and its agent does not answer
  if (!active || (await domain.state()).state !== DomainStateCode.RUNNING) return work();
  const frozen = await freezeGuest(domain, context);
  try {
    await whilePaused(domain, context, work);
  } finally {
    await frozen?.undo(AbortSignal.timeout(UNDO_TIMEOUT_MS));
  }
}

async function whilePaused(
  domain: Domain,
  context: OperationContext,
  work: () => Promise<void>,
): Promise<void> {
  // to freeze it may have taken long: one that a user has suspended meanwhile is not ours to resume
  if ((await domain.state()).state !== DomainStateCode.RUNNING) return work();
  const paused = context.effects.begin({ type: 'paused_guest', domainId: domain.uuid }, 'always');
  try {
    await domain.suspend();
    await work();
  } finally {
    await paused.undo(AbortSignal.timeout(UNDO_TIMEOUT_MS));
  }
}

/** Freezes the guest's file systems through its agent; a guest that cannot be asked is as after a power cut. */
async function freezeGuest(domain: Domain, context: OperationContext) {
  const probe = await probeAgent(domain);
  if (!probe.answers) return warnOfCrash(context, probe.reason);
  const frozen = context.effects.begin({ type: 'frozen_guest', domainId: domain.uuid }, 'always');
  await domain.setAgentTimeout(FREEZE_TIMEOUT_SEC).catch(() => {});
  try {
    await domain.freeze();
    return frozen;
  } catch (error) {
    await frozen.undo(AbortSignal.timeout(UNDO_TIMEOUT_MS));
    return warnOfCrash(context, reasonOf(error));
  } finally {
    await domain.setAgentTimeout(AGENT_BLOCK).catch(() => {});
  }
}

function warnOfCrash(context: OperationContext, reason: string): null {
  context.warn(`The guest could not be quiesced (${reason}); the state is as after a power cut.`);
  return null;
}
