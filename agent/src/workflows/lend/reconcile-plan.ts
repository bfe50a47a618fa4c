/**
 * What is to be done about loans because of what others did: a guest let go, a borrower was deleted, metadata was lost.
 * Pure: decided from what libvirt says of all domains of the node.
 */
import type { Attachment, Loan } from '../../domain-xml/index.ts';

export interface PartyView {
  id: string;
  name: string;
  /** Its guest can be asked for a disk: it is neither off nor suspended. */
  running: boolean;
  /** Disks of others that it really has. */
  attachments: Attachment[];
  /** What its metadata says that it has. */
  noted: Attachment[];
  loans: Loan[];
  /** It bears the state that lent disks have, and that could be merged: not while its memory is saved. */
  hasInstant: boolean;
}

export interface LoanAction {
  do: /** The borrower has the disk no more, or is gone: the loan ends. */
    | 'end'
    /** The guest is asked again for a disk that it was asked for before. */
    | 'take_back'
    /** The borrower has the disk and the owner does not know: the loan is noted. */
    | 'note'
    /** Nothing is lent and the instant is still there. */
    | 'release'
    /** A clone was kept: the loan ends when it does not exist any more. */
    | 'look_at_clone';
  ownerId: string;
  diskId: string;
  borrowerId: string;
}

/** The domains that are there and cannot be read, each with those whose disks its text may name, by id. */
export type UnreadDomains = ReadonlyMap<string, ReadonlySet<string>>;

/** An instant without loans that stays all the same. */
export interface HeldRelease {
  owner: string;
  /** The domain that cannot be read and may have a disk of it. */
  unread: string;
}

/**
 * All that is to be done; nothing when everything is as it should be.
 * @param unread what these have, or lend, is left as it is
 */
export function planReconciliation(
  domains: readonly PartyView[],
  unread: UnreadDomains = new Map(),
): LoanAction[] {
  const byId = new Map(domains.map(domain => [domain.id, domain]));
  const wanted = new Set(domains.flatMap(({ attachments }) => attachments.map(({ ownerId }) => ownerId)));
  const actions = [
    ...domains.flatMap(owner => ofOwner(owner, byId, wanted.has(owner.id))),
    ...domains.flatMap(borrower => ofBorrower(borrower, byId, domains)),
  ];
  const isSure = ({ do: what, ownerId, borrowerId }: LoanAction) =>
    !unread.has(ownerId) &&
    !unread.has(borrowerId) &&
    (what !== 'release' || holderOf(ownerId, unread) === undefined);
  return actions.filter(isSure);
}

/** What was found before and is due now too. */
export function stillDue(found: readonly LoanAction[], now: readonly LoanAction[]): LoanAction[] {
  const isSame = (a: LoanAction, b: LoanAction) =>
    a.do === b.do && a.ownerId === b.ownerId && a.diskId === b.diskId && a.borrowerId === b.borrowerId;
  return found.filter(action => now.some(other => isSame(action, other)));
}

/** The instants that nothing but a domain that cannot be read may want. */
export function heldReleases(domains: readonly PartyView[], unread: UnreadDomains): HeldRelease[] {
  return planReconciliation(domains).flatMap(({ do: what, ownerId }): HeldRelease[] => {
    const holder = what === 'release' ? holderOf(ownerId, unread) : undefined;
    return holder === undefined ? [] : [{ owner: ownerId, unread: holder }];
  });
}

function holderOf(ownerId: string, unread: UnreadDomains): string | undefined {
  return [...unread].find(([, owners]) => owners.has(ownerId))?.[0];
}

/** @param isWanted some domain has a disk of it */
function ofOwner(owner: PartyView, byId: ReadonlyMap<string, PartyView>, isWanted: boolean): LoanAction[] {
  const ownerId = owner.id;
  if (owner.loans.length === 0)
    return owner.hasInstant && !isWanted ? [{ do: 'release', ownerId, diskId: '', borrowerId: '' }] : [];
  return owner.loans.flatMap(({ diskId, borrowerId, borrowerNodeId, cloneKept }): LoanAction[] => {
    const key = { ownerId, diskId, borrowerId };
    if (cloneKept) return [{ do: 'look_at_clone', ...key }];
    // of another node's domains only the controller knows
    if (borrowerNodeId !== undefined) return [];
    const isThere = byId.get(borrowerId)?.attachments.some(attachment => attachment.diskId === diskId);
    return isThere ? [] : [{ do: 'end', ...key }];
  });
}

function ofBorrower(
  borrower: PartyView,
  byId: ReadonlyMap<string, PartyView>,
  domains: readonly PartyView[],
): LoanAction[] {
  const borrowerId = borrower.id;
  const isLent = (ownerId: string, diskId: string) =>
    byId.get(ownerId)?.loans.some(loan => loan.diskId === diskId && loan.borrowerId === borrowerId);
  const actions = borrower.attachments.flatMap((attachment): LoanAction[] => {
    const { diskId } = attachment;
    const ownerId = attachment.ownerId || (domains.find(({ id }) => isLent(id, diskId))?.id ?? '');
    const key = { ownerId, diskId, borrowerId };
    const isUnknown = byId.has(ownerId) && !isLent(ownerId, diskId);
    return [
      ...(isUnknown ? [{ do: 'note', ...key } as const] : []),
      ...(attachment.detaching && borrower.running ? [{ do: 'take_back', ...key } as const] : []),
    ];
  });
  // an owner of this node has a loan for each of these, which ends them
  const stale = borrower.noted.filter(
    ({ diskId, ownerId }) =>
      !borrower.attachments.some(attachment => attachment.diskId === diskId) && !isLent(ownerId, diskId),
  );
  const ends = stale.map(({ diskId, ownerId }) => ({ do: 'end', ownerId, diskId, borrowerId }) as const);
  return [...actions, ...ends];
}
