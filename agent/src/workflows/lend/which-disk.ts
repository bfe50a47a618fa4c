/** Which disk a request means on this node, as its answers say it; the rule is that of both sides. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Attachment, Disk, Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import {
  type DiskRequest,
  isChosen,
  knownDomains,
  warningsOf,
  whichAttachment,
  whichDisk,
} from '@virtkeep/shared/which-disk';

export interface DiskToLend {
  owner: Domain;
  disk: Disk;
  thinClone: boolean;
  warnings: string[];
}

/**
 * @param domains all domains of the node
 * @param isOnZfs whether the disk of that id lies on zfs
 * @throws VirtkeepError vdisk_not_found; domain_not_found and not_thin_clone for the thin clone
 */
export function diskToLend(domains: readonly Domain[], request: DiskRequest, isOnZfs: boolean): DiskToLend {
  const chosen = whichDisk(knownDomains(domains), request, isOnZfs);
  if (isChosen(chosen)) {
    const { owner, disk, thinClone } = chosen;
    return { owner, disk, thinClone, warnings: warningsOf(chosen) };
  }
  if (chosen.fault === 'no_domain') throw new VirtkeepError('domain_not_found', { id: request.thinCloneId });
  if (chosen.fault === 'no_thin_clone')
    throw new VirtkeepError('not_thin_clone', { domain: chosen.owner.name });
  throw new VirtkeepError('vdisk_not_found', { id: request.diskId });
}

export interface LoanToEnd {
  diskId: string;
  ownerId: string;
  /** It was named by the id of its clone, which is to stay. */
  keepClone: boolean;
}

/**
 * Which loan a request to detach ends: the id of the original, as given to attach; that of a clone on zfs.
 * @param domains all domains of the node, the borrower with its attachments among them
 * @param isClone whether what is attached is a clone with an id of its own
 * @throws VirtkeepError attached_object_given, vdisk_not_attached
 */
export function loanToEnd(
  domains: readonly Domain[],
  borrower: Domain,
  request: DiskRequest,
  isClone: (attachment: Attachment) => boolean,
): LoanToEnd {
  const { diskId, thinCloneId } = request;
  const meant = whichAttachment(knownDomains(domains), borrower, request);
  if (meant) return { diskId: meant.diskId, ownerId: meant.ownerId, keepClone: false };
  const attached = borrower.attachments.find(attachment => attachment.attachedId === diskId);
  if (attached && !isClone(attached))
    throw new VirtkeepError('attached_object_given', { value: diskId, disk: attached.diskId });
  if (attached) return { diskId: attached.diskId, ownerId: attached.ownerId, keepClone: true };
  // detached already, but its loan is not over: a clone was kept, or the end of the loan was cut off
  const chosen = whichDisk(knownDomains(domains), request);
  const lent = isChosen(chosen) ? chosen.disk.id : diskId;
  const lender = domains.find(
    ({ id, loans }) =>
      (thinCloneId === '' || id === thinCloneId) &&
      loans.some(loan => loan.diskId === lent && loan.borrowerId === borrower.id),
  );
  if (lender) return { diskId: lent, ownerId: lender.id, keepClone: false };
  throw new VirtkeepError('vdisk_not_attached', { disk: diskId, domain: borrower.name });
}
