/** Waits for the power state of a domain. */
import type { Domain } from '@virtkeep/node-libvirt';
import { sleep } from '@virtkeep/shared/abort';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { powerStateOf } from '../../inventory/index.ts';
import { unlessGone } from '../../libvirt/domains.ts';
import { patiently } from '../../libvirt/errors.ts';

/** Between two looks. */
export const POLL_MS = 500;

/** Polls, since an event can be lost with the connection. */
export async function untilState(domain: Domain, desired: PowerState, signal: AbortSignal): Promise<void> {
  for (;;) {
    const power = await patiently(signal, () => currentPower(domain));
    if (power === desired) return;
    await sleep(POLL_MS, signal);
  }
}

/** A transient domain that is gone is off. @throws LibvirtError */
export function currentPower(domain: Domain): Promise<PowerState> {
  return unlessGone(async () => powerStateOf((await domain.state()).state), PowerState.OFF);
}
