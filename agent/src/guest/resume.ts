import { type Domain, DomainStateCode, ErrorCode, isLibvirtError } from '@virtkeep/node-libvirt';

/** Lets a suspended guest go on; one that runs, is off by now, or is gone needs nothing. @throws LibvirtError */
export async function ensureResumed(domain: Domain): Promise<void> {
  try {
    const { state } = await domain.state();
    if (state === DomainStateCode.PAUSED) await domain.resume();
  } catch (error) {
    if (!isLibvirtError(error) || !error.is(ErrorCode.NO_DOMAIN)) throw error;
  }
}
