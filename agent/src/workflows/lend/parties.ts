import { VirtkeepError } from '@virtkeep/shared/errors';
import type { WorkflowDependencies } from '../dependencies.ts';
import { resolveVolumes } from '../domain/volumes.ts';
import type { Lender } from './freezer.ts';
import { lenderOf, type Party, readParty } from './lender.ts';

/** @throws VirtkeepError domain_not_found */
export async function requireParty(dependencies: WorkflowDependencies, domainId: string): Promise<Party> {
  const party = await readParty(dependencies.libvirt(), domainId);
  if (!party) throw new VirtkeepError('domain_not_found', { id: domainId });
  return party;
}

/** The domain as a lender; its disks' headers are read. */
export async function readLender(
  dependencies: WorkflowDependencies,
  party: Party,
  signal: AbortSignal,
): Promise<Lender> {
  const libvirt = dependencies.libvirt();
  const pools = await dependencies.pools(signal);
  return lenderOf(libvirt, party, pools, disks => resolveVolumes(libvirt, disks));
}
