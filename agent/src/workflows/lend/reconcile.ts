/** Puts loans right that others have changed: what the reconciler found, done under the locks of the domains. */
import { hasKey, reasonOf } from '@virtkeep/shared/errors';
import { fromLibvirt } from '../../libvirt/errors.ts';
import { LENDING_STATE } from '../../snapshots/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { freezerOf } from './freezers.ts';
import { readParty } from './lender.ts';
import { isSame, noteLoan, takeBack } from './loan.ts';
import { readLender, requireParty } from './parties.ts';
import { type LoanAction, stillDue } from './reconcile-plan.ts';

/**
 * The workflow. Result: `{"waiting":["disk id",…]}`, the disks that their guests still do not let go.
 * @param found what was due when the reconciler looked, without a lock: a disk may have been lent since
 * @param dueNow all that is due at the moment of the call, asked under the locks
 */
export function reconcileLoansWorkflow(
  dependencies: WorkflowDependencies,
  found: readonly LoanAction[],
  dueNow: () => Promise<readonly LoanAction[]>,
): Workflow {
  return context =>
    run(dependencies, { found, dueNow }, context).catch(error => {
      context.signal.throwIfAborted();
      throw fromLibvirt(error, 'keep_loans');
    });
}

async function run(
  dependencies: WorkflowDependencies,
  { found, dueNow }: { found: readonly LoanAction[]; dueNow: () => Promise<readonly LoanAction[]> },
  context: OperationContext,
): Promise<void> {
  const waiting: string[] = [];
  await context.step('settle', async () => {
    for (const action of stillDue(found, await dueNow())) {
      try {
        if (!(await settle(dependencies, action, context))) waiting.push(action.diskId);
      } catch (error) {
        // its domain went away meanwhile: the next look tells
        if (!hasKey(error, 'domain_not_found')) throw error;
        context.log.info('a loan could not be settled', { action, reason: reasonOf(error) });
      }
    }
    context.commit({ $case: 'keepLoans', value: { waiting } });
  });
}

/** @returns false when a guest does not let go */
async function settle(
  dependencies: WorkflowDependencies,
  action: LoanAction,
  context: OperationContext,
): Promise<boolean> {
  const { ownerId, diskId, borrowerId } = action;
  const key = { ownerId, diskId, borrowerId };
  switch (action.do) {
    case 'take_back':
      if (!(await takeBack(dependencies, key, context))) return false;
      await end(dependencies, key, context);
      return true;
    case 'end':
      await end(dependencies, key, context);
      return true;
    case 'note':
      await noteLoan(await requireParty(dependencies, ownerId), { diskId, borrowerId });
      return true;
    case 'look_at_clone': {
      const { lender, freezer } = await freezerAt(dependencies, ownerId, context);
      if (!(await freezer.cloneExists(lender, diskId, borrowerId, context)))
        await end(dependencies, key, context);
      return true;
    }
    case 'release':
      await release(dependencies, ownerId, context);
      return true;
  }
}

async function freezerAt(dependencies: WorkflowDependencies, ownerId: string, context: OperationContext) {
  const owner = await requireParty(dependencies, ownerId);
  const lender = await readLender(dependencies, owner, context.signal);
  return { domain: owner.domain, lender, freezer: await freezerOf(dependencies, lender, context) };
}

/**
 * A saved state is forgotten before its layers are merged: what is cut off then, no look at libvirt would find. One that is still listed is
 * found by the next look, and holds nobody up until then.
 */
async function release(
  dependencies: WorkflowDependencies,
  ownerId: string,
  context: OperationContext,
): Promise<void> {
  const { domain, lender, freezer } = await freezerAt(dependencies, ownerId, context);
  if (!(await domain.findSnapshot(LENDING_STATE))) return freezer.release(lender, context);
  const state = { domainId: ownerId, name: LENDING_STATE, countsAsDeletion: false };
  const handle = context.effects.begin({ type: 'removed_state', ...state }, 'always');
  try {
    await handle.undo(context.signal);
  } catch (error) {
    if (await domain.findSnapshot(LENDING_STATE)) handle.keep();
    throw error;
  }
}

/**
 * Declared before, so that a crash in the middle is completed before anything else may touch the domains; and done as that would be, so
 * that it waits for what the owner's disks lie on.
 */
async function end(
  dependencies: WorkflowDependencies,
  key: { ownerId: string; diskId: string; borrowerId: string },
  context: OperationContext,
): Promise<void> {
  const keepClone = await keepsClone(dependencies, key);
  const handle = context.effects.begin({ type: 'loan', ...key, unplug: false, keepClone }, 'always');
  try {
    await handle.undo(context.signal);
  } catch (error) {
    // nothing was begun: the next look finds it again, and nobody is kept from a VM until the pool is there
    const owner = await readParty(dependencies.libvirt(), key.ownerId);
    const isNoted = owner?.metadata.loans?.some(loan => isSame(loan, key));
    if (hasKey(error, 'clean_up_waits') && isNoted) handle.keep();
    throw error;
  }
}

/** The detaching that the guest did not follow at once was asked for by the clone's id. */
async function keepsClone(
  dependencies: WorkflowDependencies,
  { borrowerId, diskId }: { borrowerId: string; diskId: string },
): Promise<boolean> {
  const borrower = await requireParty(dependencies, borrowerId).catch(() => undefined);
  return (
    borrower?.metadata.attachments.some(attachment => attachment.diskId === diskId && attachment.keepClone) ??
    false
  );
}
