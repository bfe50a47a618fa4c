/**
 * Detaches a disk of another domain (specification 4.2). Once the guest was asked there is no way back: what it lets go is
 * gone, and what it keeps is asked for again until it goes. The owner's state goes with its last loan.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { fromDomain } from '../../libvirt/domains.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { kindOf, requireLasting } from '../domain/domain-kind.ts';
import { readParty } from './lender.ts';
import { type LoanKey, takeBack } from './loan.ts';
import { requireParty } from './parties.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const DETACH_DISK_STEPS = ['check', 'unplug', 'release'] as const;

export interface DetachRequest extends LoanKey {
  /** It was named by the id of its clone (on zfs), which stays. */
  keepClone: boolean;
}

/** The workflow. Result: `{"vdisk","owner_id","domain_id","owner_is_here":bool}`. */
export function detachDiskWorkflow(dependencies: WorkflowDependencies, request: DetachRequest): Workflow {
  return context =>
    run(dependencies, request, context).catch(error => {
      context.signal.throwIfAborted();
      throw fromDomain(error, request.borrowerId, 'detach_disk');
    });
}

async function run(
  dependencies: WorkflowDependencies,
  request: DetachRequest,
  context: OperationContext,
): Promise<void> {
  const { step, effects, commit } = context;
  const { ownerId, diskId, borrowerId, keepClone } = request;
  const ownerIsHere = await step('check', async () => {
    const { domain } = await requireParty(dependencies, borrowerId);
    // its memory would go on with a disk that its owner has back; a transient one may give back what it has
    requireLasting({ ...(await kindOf(domain)), persistent: true }, 'freed of disks of other domains');
    return ownerId !== '' && (await readParty(dependencies.libvirt(), ownerId)) !== undefined;
  });
  const handle = effects.begin(
    { type: 'loan', ownerId, diskId, borrowerId, unplug: false, keepClone },
    'always',
  );
  await step('unplug', async () => {
    const isGone = await takeBack(dependencies, request, context, keepClone);
    if (!isGone) throw new VirtkeepError('device_did_not_detach', { id: borrowerId });
  });
  await step('release', async () => {
    const value = { vdisk: diskId, ownerId, domainId: borrowerId, ownerIsHere };
    commit({ $case: 'detachDisk', value });
    await handle.undo(context.signal);
  });
}
