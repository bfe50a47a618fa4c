/** Whether an owner's instant is still read on another node: a borrower may have moved with its disk. */
import { PATIENCE_MS, useElsewhere } from '../../images/index.ts';
import { LENDING_STATE, loadStates } from '../../snapshots/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { type Party, readParty } from './lender.ts';
import { isSame } from './loan.ts';
import type { LoanAction } from './reconcile-plan.ts';

/** The domain of another node that runs with a disk of the owner's instant. Nobody waits for a node that gives no answer. */
export async function readerElsewhere(
  dependencies: WorkflowDependencies,
  owner: Party,
  signal: AbortSignal,
): Promise<string | undefined> {
  const use = await useOf(dependencies, owner, signal);
  return use.kind === 'used' ? use.by : undefined;
}

async function useOf(dependencies: WorkflowDependencies, { domain }: Party, signal: AbortSignal) {
  const states = await loadStates(domain);
  const paths = Object.values(states.find(({ name }) => name === LENDING_STATE)?.frozen ?? {});
  const question = { domainId: domain.uuid, paths, proven: true, isRead: true };
  return useElsewhere(dependencies, question, signal);
}

/** Owners of instants of which not all nodes were heard: nobody is in a hurry to merge what others did not give back. */
export class Unheard {
  readonly #patienceMs: number;
  readonly #sinceMs = new Map<string, number>();

  constructor(patienceMs = PATIENCE_MS) {
    this.#patienceMs = patienceMs;
  }

  heard(ownerId: string): void {
    this.#sinceMs.delete(ownerId);
  }

  /** Whether an answer was missing when it was last asked for. */
  has(ownerId: string): boolean {
    return this.#sinceMs.has(ownerId);
  }

  /** Whether an answer is still waited for. */
  isWaitedFor(ownerId: string): boolean {
    const sinceMs = this.#sinceMs.get(ownerId) ?? performance.now();
    this.#sinceMs.set(ownerId, sinceMs);
    return performance.now() - sinceMs < this.#patienceMs;
  }
}

/** What is due, but for what would merge an instant that is read elsewhere, or of which that is not known yet. */
export async function withoutRead(
  dependencies: WorkflowDependencies,
  due: readonly LoanAction[],
  unheard: Unheard,
  signal: AbortSignal,
): Promise<LoanAction[]> {
  const read = new Set<string>();
  for (const ownerId of new Set(due.filter(isEnd).map(action => action.ownerId))) {
    const owner = ownerId === '' ? undefined : await readParty(dependencies.libvirt(), ownerId);
    // what is merged with the last loan is what all had
    const stays = owner?.metadata.loans?.some(loan => !due.some(action => isSame(loan, action)));
    if (!owner || stays) continue;
    const use = await useOf(dependencies, owner, signal);
    if (use.kind !== 'unknown') unheard.heard(ownerId);
    if (use.kind === 'free' || (use.kind === 'unknown' && !unheard.isWaitedFor(ownerId))) continue;
    dependencies.log.debug('an instant stays: it is, or may be, read on another node', {
      owner: ownerId,
      use,
    });
    read.add(ownerId);
  }
  return due.filter(action => !isEnd(action) || !read.has(action.ownerId));
}

const isEnd = ({ do: what }: LoanAction): boolean => what === 'end' || what === 'release';
