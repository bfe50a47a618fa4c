/** The owner's side of a loan to a domain of another node: the instant and the note here, the disk there. */
import { fromDomain } from '../../libvirt/domains.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { hold, sourceFor } from './attach.ts';
import { endAtOwner, type LoanKey, noteLoan } from './loan.ts';
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
  const { metadata } = await requireParty(dependencies, ownerId);
  const isKnown = metadata.loans?.some(loan => loan.diskId === diskId && loan.borrowerId === borrowerId);
  // a loan that was there before stays when this fails
  if (!isKnown)
    effects.begin({ type: 'loan', ownerId, diskId, borrowerId, unplug: false, keepClone: false }, 'failure');
  const held = await step('freeze', () => hold(dependencies, request, context));
  const pools = await dependencies.pools(signal);
  const source = sourceFor(request, held, pools, dependencies.nodeName);
  await step('note', async () => {
    await noteLoan(await requireParty(dependencies, ownerId), { diskId, borrowerId, borrowerNodeId });
    commit({ $case: 'lendDisk', value: { source, snapshot: held.instant ?? undefined } });
  });
}

/** The workflow that ends such a loan. Idempotent. Result: `{}`. */
export function returnDiskWorkflow(dependencies: WorkflowDependencies, key: LoanKey): Workflow {
  return context =>
    giveBack(dependencies, key, context).catch(error => {
      context.signal.throwIfAborted();
      throw fromDomain(error, key.ownerId, 'return_disk');
    });
}

async function giveBack(
  dependencies: WorkflowDependencies,
  key: LoanKey,
  context: OperationContext,
): Promise<void> {
  const handle = context.effects.begin({ type: 'loan', ...key, unplug: false, keepClone: false }, 'always');
  await context.step('release', async () => {
    await endAtOwner(dependencies, key, false, context);
    context.commit();
    handle.keep();
  });
}
