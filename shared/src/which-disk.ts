/**
 * Which disk a request to attach or detach means, and whose it is (specification 4.1, rule 3): the one rule of both sides. The
 * controller asks it of all nodes' domains, to find the node; the agent of its own node's, to do it. Pure.
 */
import type { Attachment, Disk, Domain } from './gen/virtkeep/agent/v1/domain.ts';

export interface DiskRequest {
  /** Id of the original. */
  diskId: string;
  /** The thin clone whose state is meant, or empty. */
  thinCloneId: string;
}

export interface ChosenDisk {
  owner: Domain;
  disk: Disk;
  /** The thin clone's state, not its template's. */
  thinClone: boolean;
  /** The thin clone's own disk, which was named and not taken: `thin_clone` was not given. */
  passedOver?: { owner: Domain; disk: Disk };
}

/** What is wrong with a request: its thin clone is not there, is none, or has no such disk; or there is no such disk. */
export type NoDisk =
  | { fault: 'no_domain' }
  | { fault: 'no_thin_clone'; owner: Domain }
  | { fault: 'not_its_disk'; owner: Domain }
  | { fault: 'no_disk' };

/** The domains that are known, templates among them. */
export interface KnownDomains {
  withId(id: string): Domain | undefined;
  /** Of a disk that several domains share one of them, the same each time while nothing changes. */
  withDisk(diskId: string): Domain | undefined;
}

/** These few, looked through at each question. */
export const knownDomains = (domains: readonly Domain[]): KnownDomains => ({
  withId: id => domains.find(domain => domain.id === id),
  withDisk: diskId => domains.find(({ disks }) => disks.some(({ id }) => id === diskId)),
});

export const isChosen = (answer: ChosenDisk | NoDisk): answer is ChosenDisk => !('fault' in answer);

/**
 * @param isOnZfs whether the disk of that id lies on zfs: there a thin clone's disk is its own, asked for either way
 */
export function whichDisk(domains: KnownDomains, request: DiskRequest, isOnZfs = false): ChosenDisk | NoDisk {
  return request.thinCloneId === ''
    ? plainDisk(domains, request.diskId, isOnZfs)
    : cloneDisk(domains, request);
}

/** What whoever asked is to be told: the disk that was named is not the one that was taken. */
export function warningsOf({ owner, disk, passedOver }: ChosenDisk): string[] {
  if (!passedOver) return [];
  return [
    `The disk ${passedOver.disk.id} is that of the thin clone ${passedOver.owner.name}, which was not given as thin_clone: ` +
      `the disk ${disk.id} of its template ${owner.name} was taken, with the template's state.`,
  ];
}

/** With a thin clone: its disk, named by its own id or by that of the template's disk that it stands on. */
function cloneDisk(domains: KnownDomains, { diskId, thinCloneId }: DiskRequest): ChosenDisk | NoDisk {
  const owner = domains.withId(thinCloneId);
  if (!owner) return { fault: 'no_domain' };
  if (owner.parentId === '') return { fault: 'no_thin_clone', owner };
  const named = ownedDisk(domains, diskId);
  if (!named) return { fault: 'no_disk' };
  const disk = diskOf(owner, diskId, named.disk);
  return disk ? { owner, disk, thinClone: true } : { fault: 'not_its_disk', owner };
}

/** Without one: a thin clone's disk means the one of its template, with the template's state. */
function plainDisk(domains: KnownDomains, diskId: string, isOnZfs: boolean): ChosenDisk | NoDisk {
  const named = ownedDisk(domains, diskId);
  if (!named) return { fault: 'no_disk' };
  const { owner, disk } = named;
  const template = owner.parentId === '' ? undefined : domains.withId(owner.parentId);
  const below = template?.disks.find(other => disk.backingChain.includes(other.path));
  if (!template || !below) return { owner, disk, thinClone: false };
  if (isOnZfs) return { owner, disk, thinClone: true };
  return { owner: template, disk: below, thinClone: false, passedOver: named };
}

/**
 * The disk that a domain has under an id: its own, or the one that stands on the disk of that id, as a thin clone's on its
 * template's.
 */
export function diskOf(owner: Domain, diskId: string, named: Disk | undefined): Disk | undefined {
  return (
    owner.disks.find(({ id }) => id === diskId) ??
    owner.disks.find(({ backingChain }) => named && backingChain.includes(named.path))
  );
}

/**
 * The attachment that a request to detach means: the id of the original as it was given to attach, or by any other name that
 * the same disk has; undefined when there is none.
 */
export function whichAttachment(
  domains: KnownDomains,
  borrower: Domain,
  request: DiskRequest,
): Attachment | undefined {
  const isMeant = ({ ownerId }: Attachment) => request.thinCloneId === '' || ownerId === request.thinCloneId;
  const isNamed = (one: Attachment) =>
    one.diskId === request.diskId || isOriginal(domains, one, request.diskId);
  const named = borrower.attachments.filter(one => isMeant(one) && isNamed(one));
  // a template's disk and a thin clone's may both be attached under the same id: `thinCloneId` says which
  const fitting = named.find(one => one.thinClone === (request.thinCloneId !== '')) ?? named[0];
  if (fitting) return fitting;
  const chosen = whichDisk(domains, request);
  if (!isChosen(chosen)) return undefined;
  return borrower.attachments.find(one => one.diskId === chosen.disk.id && one.ownerId === chosen.owner.id);
}

/** Whether the disk of that id is the one that was lent, which may stand there by the name of its template's. */
function isOriginal(domains: KnownDomains, { ownerId, diskId }: Attachment, id: string): boolean {
  const owner = domains.withId(ownerId);
  return owner !== undefined && diskOf(owner, diskId, ownedDisk(domains, diskId)?.disk)?.id === id;
}

/** The disk and its domain. */
function ownedDisk(domains: KnownDomains, diskId: string): { owner: Domain; disk: Disk } | undefined {
  const owner = domains.withDisk(diskId);
  const disk = owner?.disks.find(({ id }) => id === diskId);
  return owner && disk ? { owner, disk } : undefined;
}
