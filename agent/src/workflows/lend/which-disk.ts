/** Which disk a request means, and whose it is (specification 4.1, rule 3). Pure: decided from what the node has. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Attachment, Disk, Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';

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
  warnings: string[];
}

/**
 * @param domains all domains of the node
 * @param isOnZfs whether the disk of that id lies on zfs: there a thin clone's disk is its own, asked for either way
 * @throws VirtkeepError vdisk_not_found; domain_not_found and not_thin_clone for the thin clone
 */
export function whichDisk(domains: readonly Domain[], request: DiskRequest, isOnZfs = false): ChosenDisk {
  return request.thinCloneId === ''
    ? plainDisk(domains, request.diskId, isOnZfs)
    : cloneDisk(domains, request);
}

/** With a thin clone: its disk, named by its own id or by that of the template's disk that it stands on. */
function cloneDisk(domains: readonly Domain[], { diskId, thinCloneId }: DiskRequest): ChosenDisk {
  const owner = domains.find(domain => domain.id === thinCloneId);
  if (!owner) throw new VirtkeepError('domain_not_found', { id: thinCloneId });
  if (owner.parentId === '') throw new VirtkeepError('not_thin_clone', { domain: owner.name });
  const below = templateOf(domains, owner)?.disks.find(disk => disk.id === diskId);
  const disk = owner.disks.find(own => own.id === diskId || (below && own.backingChain.includes(below.path)));
  if (!disk) throw new VirtkeepError('vdisk_not_found', { id: diskId });
  return { owner, disk, thinClone: true, warnings: [] };
}

/** Without one: a thin clone's disk means the one of its template, with the template's state. */
function plainDisk(domains: readonly Domain[], diskId: string, isOnZfs: boolean): ChosenDisk {
  const owner = domains.find(domain => domain.disks.some(disk => disk.id === diskId));
  const disk = owner?.disks.find(own => own.id === diskId);
  if (!owner || !disk) throw new VirtkeepError('vdisk_not_found', { id: diskId });
  const template = templateOf(domains, owner);
  const below = template?.disks.find(other => disk.backingChain.includes(other.path));
  if (!template || !below) return { owner, disk, thinClone: false, warnings: [] };
  if (isOnZfs) return { owner, disk, thinClone: true, warnings: [] };
  const warning =
    `The disk ${diskId} is that of the thin clone ${owner.name}, which was not given as thin_clone: the disk ` +
    `${below.id} of its template ${template.name} was taken, with the template's state.`;
  return { owner: template, disk: below, thinClone: false, warnings: [warning] };
}

function templateOf(domains: readonly Domain[], clone: Domain): Domain | undefined {
  return clone.parentId === '' ? undefined : domains.find(domain => domain.id === clone.parentId);
}

export interface ChosenAttachment {
  diskId: string;
  ownerId: string;
  /** It was named by the id of its clone, which is to stay. */
  keepClone: boolean;
}

/**
 * Which attachment a request to detach means: the id of the original, as given to attach; that of a clone on zfs.
 * @param domains all domains of the node, the borrower with its attachments among them
 * @param isClone whether what is attached is a clone with an id of its own
 * @throws VirtkeepError attached_object_given, vdisk_not_attached
 */
export function whichAttachment(
  domains: readonly Domain[],
  borrower: Domain,
  request: DiskRequest,
  isClone: (attachment: Attachment) => boolean,
): ChosenAttachment {
  const { diskId, thinCloneId } = request;
  const { attachments } = borrower;
  const isMeant = ({ ownerId }: { ownerId: string }) => thinCloneId === '' || ownerId === thinCloneId;
  const original = attachments.find(known => known.diskId === diskId && isMeant(known));
  if (original) return { diskId, ownerId: original.ownerId, keepClone: false };
  const attached = attachments.find(known => known.attachedId === diskId);
  if (attached && !isClone(attached))
    throw new VirtkeepError('attached_object_given', { value: diskId, disk: attached.diskId });
  if (attached) return { diskId: attached.diskId, ownerId: attached.ownerId, keepClone: true };
  const chosen = asIfAttached(domains, request);
  const known = attachments.find(
    candidate => candidate.diskId === chosen?.disk.id && candidate.ownerId === chosen.owner.id,
  );
  if (known) return { diskId: known.diskId, ownerId: known.ownerId, keepClone: false };
  // detached already, but its loan is not over: a clone was kept, or the end of the loan was cut off
  const wanted = chosen?.disk.id ?? diskId;
  const lender = domains.find(
    domain =>
      isMeant({ ownerId: domain.id }) &&
      domain.loans.some(loan => loan.diskId === wanted && loan.borrowerId === borrower.id),
  );
  if (lender) return { diskId: wanted, ownerId: lender.id, keepClone: false };
  throw new VirtkeepError('vdisk_not_attached', { disk: diskId, domain: borrower.name });
}

/** The disk that the same request to attach would mean; undefined when it would be refused. */
function asIfAttached(domains: readonly Domain[], request: DiskRequest): ChosenDisk | undefined {
  try {
    return whichDisk(domains, request);
  } catch {
    return undefined;
  }
}
