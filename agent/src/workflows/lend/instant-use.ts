/** Whether an owner's instant is still read on another node: a borrower may have moved with its disk. */
import { useElsewhere } from '../../images/index.ts';
import { LENDING_STATE, loadStates } from '../../snapshots/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { type Party, readParty } from './lender.ts';
import { isSame } from './loan.ts';
import type { LoanAction } from './reconcile-plan.ts';

/** The domain of another node that runs with a disk of the owner's instant. A node that gives no answer has none. */
export async function readerElsewhere(
  dependencies: WorkflowDependencies,
  { domain }: Party,
  signal: AbortSignal,
): Promise<string | undefined> {
  const states = await loadStates(domain);
  const paths = Object.values(states.find(({ name }) => name === LENDING_STATE)?.frozen ?? {});
  const use = await useElsewhere(dependencies, { domainId: domain.uuid, paths, proven: true }, signal);
  return use.kind === 'used' ? use.by : undefined;
}

/** What is due, but for what would merge an instant that is read elsewhere. */
export async function withoutRead(
  dependencies: WorkflowDependencies,
  due: readonly LoanAction[],
  signal: AbortSignal,
): Promise<LoanAction[]> {
  const read = new Set<string>();
  for (const ownerId of new Set(due.filter(isEnd).map(action => action.ownerId))) {
    const owner = ownerId === '' ? undefined : await readParty(dependencies.libvirt(), ownerId);
    // what is merged with the last loan is what all had
    const stays = owner?.metadata.loans?.some(loan => !due.some(action => isSame(loan, action)));
    if (!owner || stays) continue;
    const reader = await readerElsewhere(dependencies, owner, signal);
    if (reader === undefined) continue;
    dependencies.log.debug('an instant stays: it is read on another node', { owner: ownerId, reader });
    read.add(ownerId);
  }
  return due.filter(action => !isEnd(action) || !read.has(action.ownerId));
}

const isEnd = ({ do: what }: LoanAction): boolean => what === 'end' || what === 'release';
