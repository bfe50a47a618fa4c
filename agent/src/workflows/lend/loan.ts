/**
 * A loan in the metadata of both domains, and its end. Everything here is idempotent: it serves the workflows, undoing
 * them after a failure or a crash, and the reconciler that looks for what others did.
 */
import { throwIfAborted } from '@virtkeep/shared/abort';
import { hasKey } from '@virtkeep/shared/errors';
import {
  type Attachment,
  type DiskConfig,
  type DomainMetadata,
  isLent,
  type Loan,
  lentDiskIdOf,
} from '../../domain-xml/index.ts';
import { writeMetadata } from '../../snapshots/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { unplug } from './device.ts';
import type { FreezerOptions } from './freezer.ts';
import { freezerOf } from './freezers.ts';
import { attachmentsOfParty, disksOfParty, type Party, readParty } from './lender.ts';
import { readLender } from './parties.ts';
import { closeStaleImages } from './stale-images.ts';

/** Names a loan: the domain that lends, may be on another node; so may the borrower. */
export interface LoanKey {
  ownerId: string;
  diskId: string;
  borrowerId: string;
}

/** `warn` and `settle` are told of what stays although the loan has ended. */
export type LoanOptions = FreezerOptions;

/** Notes the loan in the owner's metadata. */
export async function noteLoan(party: Party, loan: Loan): Promise<void> {
  const others = (party.metadata.loans ?? []).filter(other => !isSame(other, loan));
  await change(party, { loans: [...others, loan] });
}

/** Notes the attachment in the borrower's metadata; it replaces an earlier note about the same disk. */
export async function noteAttachment(party: Party, attachment: Attachment): Promise<void> {
  const others = party.metadata.attachments.filter(({ diskId }) => diskId !== attachment.diskId);
  await change(party, { attachments: [...others, attachment] });
}

async function change(party: Party, changes: Partial<DomainMetadata>): Promise<void> {
  party.metadata = { ...party.metadata, ...changes };
  await writeMetadata(party.domain, party.metadata);
}

/** Whether it is the loan of that disk to that borrower. */
export function isSame(a: Loan, b: { diskId: string; borrowerId: string }): boolean {
  return a.diskId === b.diskId && a.borrowerId === b.borrowerId;
}

/** Whether a device of the borrower is that disk. */
export function isDiskOf({ metadata }: Party, diskId: string): (disk: DiskConfig) => boolean {
  const record = metadata.attachments.find(attachment => attachment.diskId === diskId);
  return disk => {
    const id = lentDiskIdOf(disk.alias);
    return id === undefined ? isLent(disk, metadata) && disk.path === record?.path : id === diskId;
  };
}

/**
 * Asks the borrower's guest for the disk, marked before so that it is asked again.
 * @returns whether the disk is gone
 */
export async function takeBack(
  dependencies: WorkflowDependencies,
  { borrowerId, diskId }: LoanKey,
  { signal, log }: LoanOptions,
  keepClone = false,
): Promise<boolean> {
  throwIfAborted(signal);
  const party = await readParty(dependencies.libvirt(), borrowerId);
  const attached = party && attachmentsOfParty(party).find(attachment => attachment.diskId === diskId);
  if (!party) return true;
  if (attached && (!attached.detaching || keepClone))
    await noteAttachment(party, { ...attached, detaching: true, ...(keepClone ? { keepClone } : {}) });
  return unplug(dependencies, borrowerId, isDiskOf(party, diskId), log);
}

/**
 * Ends a loan when the borrower has the disk no more: the notes go, its clone goes, and with the owner's last loan its
 * instant. Nothing happens while the disk is attached.
 * @param keepClone the clone (on zfs) stays and holds the instant; the loan then stands for it
 * @throws VirtkeepError snapshot_remove_failed, zfs_failed; LibvirtError: tried again
 */
async function endLoan(
  dependencies: WorkflowDependencies,
  key: LoanKey,
  keepClone: boolean,
  options: LoanOptions,
): Promise<void> {
  const borrower = await readParty(dependencies.libvirt(), key.borrowerId);
  if (borrower) {
    const isMeant = isDiskOf(borrower, key.diskId);
    if (disksOfParty(borrower).some(isMeant)) return;
    // a running domain may have lost it while its definition still names it
    if (borrower.config?.disks.some(isMeant))
      await unplug(dependencies, key.borrowerId, isMeant, options.log);
    // before the instant goes: what somebody has attached is not merged
    const attachments = borrower.metadata.attachments.filter(({ diskId }) => diskId !== key.diskId);
    if (attachments.length < borrower.metadata.attachments.length) await change(borrower, { attachments });
  }
  await endAtOwner(dependencies, key, keepClone, options).catch(async (error: unknown) => {
    if (!borrower || !hasKey(error, 'snapshot_remove_failed')) throw error;
    const owner = await readParty(dependencies.libvirt(), key.ownerId);
    if (!owner || !(await closeStaleImages(borrower, owner, options.log))) throw error;
    await endAtOwner(dependencies, key, keepClone, options);
  });
}

/** The owner's part: also of a loan to another node. Nothing to do when the owner is not here. Idempotent. */
async function endAtOwner(
  dependencies: WorkflowDependencies,
  { ownerId, diskId, borrowerId }: LoanKey,
  keepClone: boolean,
  options: LoanOptions,
): Promise<void> {
  const owner = ownerId === '' ? undefined : await readParty(dependencies.libvirt(), ownerId);
  if (!owner) return;
  const lender = await readLender(dependencies, owner, options.signal);
  const freezer = await freezerOf(dependencies, lender, options);
  const loan = owner.metadata.loans?.find(candidate => isSame(candidate, { diskId, borrowerId }));
  if (keepClone && loan && (await freezer.cloneExists(lender, diskId, borrowerId, options))) {
    if (!loan.cloneKept) await noteLoan(owner, { ...loan, cloneKept: true });
    return;
  }
  await freezer.giveBack(lender, diskId, borrowerId, options);
  if (loan) await change(owner, { loans: owner.metadata.loans!.filter(other => other !== loan) });
  if (!owner.metadata.loans?.length) await freezer.release(lender, options);
}

/** Undo of the effect `loan`. */
export async function undoLoan(
  dependencies: WorkflowDependencies,
  effect: LoanKey & { unplug: boolean; keepClone: boolean },
  options: LoanOptions,
): Promise<void> {
  if (effect.unplug) await takeBack(dependencies, effect, options);
  await endLoan(dependencies, effect, effect.keepClone, options);
}
