/** What a domain must not do while others have its disks (specification 3.1, 7.2): the one place that says so. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { DomainMetadata, Loan } from './metadata.ts';

/** Names for the refusal; what is not known is named by its id. */
export interface LoanNames {
  /** Target and file of a disk, say. */
  disk?(id: string): string | undefined;
  domain?(id: string): string | undefined;
}

/** Loans named in one text; further ones are counted. */
const MAX_NAMED = 10;

/** Whether others have disks of the domain, or a clone of one stands on its state. */
export function isLending({ loans }: Pick<DomainMetadata, 'loans'>): boolean {
  return loans !== undefined && loans.length > 0;
}

/**
 * Refuses what would change or remove what is lent, or needs a new saved state.
 * @param action completes "it cannot be …": "reverted", "removed", "backed up incrementally"
 * @throws VirtkeepError vdisk_attached_elsewhere, naming disks and borrowers
 */
export function refuseWhileLent(
  metadata: Pick<DomainMetadata, 'loans'>,
  domainName: string,
  action: string,
  names: LoanNames = {},
): void {
  if (!isLending(metadata)) return;
  throw new VirtkeepError('vdisk_attached_elsewhere', {
    domain: domainName,
    attachments: describeLoans(metadata.loans!, names),
    action,
  });
}

/** Each disk with its borrower, for people. */
export function describeLoans(loans: readonly Loan[], names: LoanNames): string {
  const texts = loans.slice(0, MAX_NAMED).map(({ diskId, borrowerId, cloneKept }) => {
    const disk = named(diskId, names.disk?.(diskId));
    const borrower = named(borrowerId, names.domain?.(borrowerId));
    return cloneKept ? `a clone of ${disk} was kept` : `${disk} to ${borrower}`;
  });
  const more = loans.length - texts.length;
  return more > 0 ? `${texts.join(', ')}, and ${more} more` : texts.join(', ');
}

function named(id: string, name: string | undefined): string {
  return name === undefined || name === '' ? id : `${name} (${id})`;
}
