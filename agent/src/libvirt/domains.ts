/** Domains that may not be there, or not any more. */
import type { Domain, Libvirt, Snapshot } from '@virtkeep/node-libvirt';
import { sleep } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { fromLibvirt, isNoDomain, isNoSnapshot, isUnlistable } from './errors.ts';

const LIST_TRIES = 50;
const LIST_RETRY_MS = 200;

/** What the work gives; `otherwise` when the domain that it asks is not there. @throws LibvirtError, and what `work` throws */
export async function unlessGone<T, O>(work: () => Promise<T>, otherwise: O): Promise<T | O> {
  try {
    return await work();
  } catch (error) {
    if (isNoDomain(error)) return otherwise;
    throw error;
  }
}

/** The domain; null when there is none. @throws LibvirtError */
export function findDomain(libvirt: Libvirt, domainId: string): Promise<Domain | null> {
  return unlessGone(() => libvirt.domainByUuid(domainId), null);
}

/** The saved states of a domain; waits ten seconds for one that is being made. @throws LibvirtError */
export async function listSnapshots(domain: Domain, flags?: number): Promise<Snapshot[]> {
  for (let tries = 1; ; tries++) {
    try {
      return await domain.snapshots(flags);
    } catch (error) {
      if (!isUnlistable(error) || tries === LIST_TRIES) throw error;
    }
    await sleep(LIST_RETRY_MS);
  }
}

/** The XML of a saved state of a list; null when it was deleted since. @throws LibvirtError */
export async function snapshotXml(snapshot: Snapshot, flags?: number): Promise<string | null> {
  try {
    return await snapshot.xml(flags);
  } catch (error) {
    if (isNoSnapshot(error)) return null;
    throw error;
  }
}

/** The error of work on a domain as the product's: `domain_not_found` when it is not there, else as `fromLibvirt`. */
export function fromDomain(error: unknown, domainId: string, call: string): VirtkeepError {
  if (isNoDomain(error)) return new VirtkeepError('domain_not_found', { id: domainId }, { cause: error });
  return fromLibvirt(error, call);
}
