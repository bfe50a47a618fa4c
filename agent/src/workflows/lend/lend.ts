/** The owner's side of a loan to a domain of another node: the instant and the note here, the disk there. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { fromDomain } from '../../libvirt/domains.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { hold, refuseFormerInstant, sourceFor } from './attach.ts';
import { readerElsewhere } from './instant-use.ts';
import { readParty } from './lender.ts';
import { isSame, type LoanKey, noteLoan } from './loan.ts';
import { requireParty } from './parties.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const LEND_DISK_STEPS = ['freeze', 'note'] as const;
export const RETURN_DISK_STEPS = ['release'] as const;

export interface LendRequest extends LoanKey {
  borrowerNodeId: string;
  thinClone: boolean;
  /** As in an AttachRequest. */
  allowNetworkLayers: boolean;
  warnings: string[];
}

/** The workflow. Result: `{"source":DiskSource as JSON,"snapshot":{"id","name"}|null}`. */
export function lendDiskWorkflow(dependencies: WorkflowDependencies, request: LendRequest): Workflow {
  return context =>
    lend(dependencies, request, context).catch(error => {
      context.signal.throwIfAborted();
      throw fromDomain(error, request.ownerId, 'lend_disk');
    });
}

async function lend(
  dependencies: WorkflowDependencies,
  request: LendRequest,
  context: OperationContext,
): Promise<void> {
  const { step, effects, commit, signal, warn } = context;
  const { ownerId, diskId, borrowerId, borrowerNodeId } = request;
  for (const warning of request.warnings) warn(warning);
  const owner = await requireParty(dependencies, ownerId);
  await refuseFormerInstant(owner);
  const isKnown = owner.metadata.loans?.some(loan => isSame(loan, request));
  // a loan that was there before stays when this fails
  if (!isKnown)
    effects.begin({ type: 'loan', ownerId, diskId, borrowerId, unplug: false, keepClone: false }, 'failure');
  const held = await step('freeze', () => hold(dependencies, request, context));
  const pools = await dependencies.pools(signal);
  const source = sourceFor(request, held, pools, dependencies.nodeName);
  await step('note', async () => {
    const loan = { diskId, borrowerId, borrowerNodeId, mark: newId() };
    await noteLoan(await requireParty(dependencies, ownerId), loan);
    commit({ $case: 'lendDisk', value: { source, snapshot: held.instant ?? undefined } });
  });
}

export interface ReturnRequest extends LoanKey {
  /** Of the loan that is over, as the inventory told it; empty: whichever there is. */
  mark: string;
}

/** The workflow that ends such a loan. Idempotent. Result: `{}`. */
export function returnDiskWorkflow(dependencies: WorkflowDependencies, request: ReturnRequest): Workflow {
  return context =>
    giveBack(dependencies, request, context).catch(error => {
      context.signal.throwIfAborted();
      throw fromDomain(error, request.ownerId, 'return_disk');
    });
}

async function giveBack(
  dependencies: WorkflowDependencies,
  { mark, ...key }: ReturnRequest,
  context: OperationContext,
): Promise<void> {
  await context.step('release', async () => {
    await requireOver(dependencies, key, mark, context.signal);
    const handle = context.effects.begin({ type: 'loan', ...key, unplug: false, keepClone: false }, 'always');
    // as after a crash: it waits for what the owner's disks lie on
    await handle.undo(context.signal);
    context.commit();
  });
}

/**
 * The loan was found to be over before its owner was held: what is known now decides. A node that gives no answer does not keep it; the
 * caller has heard that of the borrower.
 * @throws VirtkeepError loan_renewed, loan_in_use
 */
async function requireOver(
  dependencies: WorkflowDependencies,
  key: LoanKey,
  mark: string,
  signal: AbortSignal,
): Promise<void> {
  const { ownerId, diskId: disk, borrowerId: borrower } = key;
  const owner = await readParty(dependencies.libvirt(), ownerId);
  const loans = owner?.metadata.loans ?? [];
  const loan = loans.find(candidate => isSame(candidate, key));
  if (loan?.mark && mark !== '' && loan.mark !== mark)
    throw new VirtkeepError('loan_renewed', { disk, borrower });
  // what is merged with the last loan is what all had
  if (!owner || loans.some(other => other !== loan)) return;
  const user = await readerElsewhere(dependencies, owner, signal);
  if (user !== undefined) throw new VirtkeepError('loan_in_use', { disk, user });
}
