import { type Domain, DomainStateCode } from '@virtkeep/node-libvirt';
import { unlessGone } from '../libvirt/domains.ts';

/** Lets a suspended guest go on; one that runs, is off by now, or is gone needs nothing. @throws LibvirtError */
export async function ensureResumed(domain: Domain): Promise<void> {
  await unlessGone(async () => {
    const { state } = await domain.state();
    if (state === DomainStateCode.PAUSED) await domain.resume();
  }, undefined);
}
