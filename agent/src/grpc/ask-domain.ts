/** What the services ask libvirt about a domain before they start an operation on it. */
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { fromDomain } from '../libvirt/domains.ts';
import type { FurtherLocks } from '../operations/hold.ts';
import type { Lock } from '../workflows/context.ts';
import { domainLocks } from './start-operation.ts';

/**
 * @param call what is named when the failure does not name it itself
 * @throws VirtkeepError domain_not_found, libvirt_failed, and what `ask` raises of ours
 */
export async function askDomain<T>(
  libvirt: () => Libvirt,
  id: string,
  call: string,
  ask: (domain: Domain) => Promise<T>,
): Promise<T> {
  try {
    return await ask(await libvirt().domainByUuid(id));
  } catch (error) {
    throw fromDomain(error, id, call);
  }
}

/** Whether the domain runs or is suspended. @throws VirtkeepError domain_not_found, libvirt_failed */
export function isDomainActive(libvirt: () => Libvirt, id: string): Promise<boolean> {
  return askDomain(libvirt, id, 'virDomainIsActive', domain => domain.isActive());
}

/**
 * For work on the layers of a domain: a running one may be shut down meanwhile, one that is off must not start under it.
 * Whether it runs is asked when the work begins: while it waits for its turn, the domain may be started and stopped.
 * @throws VirtkeepError domain_not_found, libvirt_failed
 */
export async function layerLocks(
  libvirt: () => Libvirt,
  id: string,
): Promise<{ locks: Lock[]; further: FurtherLocks }> {
  const again = async (): Promise<Lock[]> =>
    (await isDomainActive(libvirt, id)) ? [] : domainLocks(id, ['power']);
  return { locks: domainLocks(id, ['domain']), further: { now: await again(), again } };
}
