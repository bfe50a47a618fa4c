/**
 * The instants of domains whose disks are lent from zfs. An instant is one snapshot of every dataset and volume that the
 * domain's disks lie on, all under one name. Its owner and its time are properties of the snapshots, so zfs alone is asked.
 * The name has the owner's id in it, since several domains may have their disks in one dataset.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Snapshot, ZfsDriver } from '../zfs/index.ts';
import { LENDING_STATE } from './plan.ts';
import type { StateFacts } from './record.ts';
import { savedStateId } from './state-id.ts';

/** The instant that all lent disks of a domain show, as users see it. */
export interface Instant {
  id: string;
  name: string;
}

/** An instant with the snapshots that make it up: `dataset@name`. */
export interface ZfsInstant extends Instant {
  createdUnix: number;
  /** Targets of the disks that it holds. */
  targets: string[];
  snapshots: string[];
}

const KEYS = ['owner', 'created', 'targets'];
/** What is written on the clones. */
export const CLONE_KEYS = ['owner', 'disk', 'borrower'];
const SEPARATOR = ':';

/** The part of a snapshot's name after the "@". */
export function snapshotNameOf(ownerId: string): string {
  return `${LENDING_STATE}-${ownerId}`;
}

/** What is written on the snapshots of an instant. */
export function instantProperties(ownerId: string, createdUnix: number, targets: readonly string[]) {
  return { owner: ownerId, created: String(createdUnix), targets: targets.join(SEPARATOR) };
}

/**
 * All instants on this node, by the domain that lends. Asks nothing where there is no zfs.
 * @throws VirtkeepError zfs_failed, io_failed
 */
export async function zfsInstants(driver: ZfsDriver, signal: AbortSignal): Promise<Map<string, ZfsInstant>> {
  if (!(await driver.isPresent())) return new Map();
  const found = new Map<string, ZfsInstant>();
  for (const snapshot of await driver.snapshots(KEYS, signal)) {
    const { owner } = snapshot.properties;
    if (owner && snapshot.name.endsWith(`@${snapshotNameOf(owner)}`)) add(found, owner, snapshot);
  }
  return found;
}

/** What the reconciler of loans needs to know of zfs. */
export interface ZfsHoldings {
  /** Domains with an instant that nothing stands on any more, so that it can go as soon as no loan is left. */
  releasable: ReadonlySet<string>;
  /** Whether the clone of a disk for a borrower exists. */
  hasClone(ownerId: string, diskId: string, borrowerId: string): boolean;
}

/** @throws VirtkeepError zfs_failed, io_failed */
export async function zfsHoldings(driver: ZfsDriver, signal: AbortSignal): Promise<ZfsHoldings> {
  const instants = await zfsInstants(driver, signal);
  const clones = instants.size > 0 ? await driver.clones(CLONE_KEYS, signal) : [];
  const origins = new Set(clones.map(({ origin }) => origin));
  const free = [...instants].filter(([, { snapshots }]) => !snapshots.some(name => origins.has(name)));
  return {
    releasable: new Set(free.map(([owner]) => owner)),
    hasClone: (owner, disk, borrower) =>
      clones.some(
        ({ properties }) =>
          properties.owner === owner && properties.disk === disk && properties.borrower === borrower,
      ),
  };
}

/**
 * Destroys an instant. A clone that somebody made of it holds it: nothing of it goes then.
 * @throws VirtkeepError zfs_clone_exists, zfs_failed
 */
export async function releaseZfs(
  driver: ZfsDriver,
  domainName: string,
  instant: ZfsInstant | null,
  { signal }: { signal: AbortSignal },
): Promise<void> {
  if (!instant) return;
  const clone = (await driver.clones([], signal)).find(({ origin }) => instant.snapshots.includes(origin));
  if (clone) throw new VirtkeepError('zfs_clone_exists', { domain: domainName, clone: clone.dataset });
  for (const snapshot of instant.snapshots) await driver.destroySnapshot(snapshot, domainName, signal);
}

function add(found: Map<string, ZfsInstant>, owner: string, { name, properties }: Snapshot): void {
  const instant = found.get(owner);
  if (instant) return void instant.snapshots.push(name);
  const createdUnix = Number(properties.created) || 0;
  const id = savedStateId(owner, { name: LENDING_STATE, createdUnix });
  const targets = properties.targets?.split(SEPARATOR) ?? [];
  found.set(owner, { id, name: LENDING_STATE, createdUnix, targets, snapshots: [name] });
}

/** The instant as a saved state, to stand among those of libvirt. */
export function asSavedState({ name, createdUnix, targets }: ZfsInstant): StateFacts {
  return {
    name,
    parent: null,
    createdUnix,
    current: false,
    memory: 'no',
    description: 'Disks of this VM are attached to other VMs as they were at this moment (zfs snapshot).',
    overlays: {},
    internalDisks: targets,
  };
}
