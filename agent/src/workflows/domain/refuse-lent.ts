import type { Libvirt } from '@virtkeep/node-libvirt';
import type { DomainMetadata } from '../../domain-xml/index.ts';
import { isLending, refuseWhileLent } from '../../domain-xml/index.ts';

/**
 * As `refuseWhileLent`, with the borrowers of this node by their names.
 * @throws VirtkeepError vdisk_attached_elsewhere
 */
export async function refuseLent(
  libvirt: Libvirt,
  metadata: Pick<DomainMetadata, 'loans'>,
  domainName: string,
  action: string,
): Promise<void> {
  if (!isLending(metadata)) return;
  const names = new Map<string, string>();
  for (const borrowerId of new Set(metadata.loans!.map(loan => loan.borrowerId))) {
    const borrower = await libvirt.domainByUuid(borrowerId).catch(() => undefined);
    if (borrower) names.set(borrowerId, borrower.name);
  }
  refuseWhileLent(metadata, domainName, action, { domain: id => names.get(id) });
}
