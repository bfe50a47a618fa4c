/** The guest's agent as a backup needs it: does it answer, are the file systems frozen, thaw them. */
import type { Domain } from '@virtkeep/node-libvirt';
import { sleep } from '@virtkeep/shared/abort';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { isAbsent } from './failures.ts';
import { guestCommand } from './session.ts';

const RETRY_MS = 1000;
/** After it the agent is asked anew whether it is frozen: libvirt may wait for the answer of an agent that is gone without end. */
const THAW_TIMEOUT_MS = 60_000;

/** Whether the agent answers a ping now. Never throws: an agent that cannot be asked does not answer. */
export async function probeAgent(
  domain: Domain,
): Promise<{ answers: true } | { answers: false; reason: string }> {
  try {
    await guestCommand(domain, 'guest-ping');
    return { answers: true };
  } catch (error) {
    return { answers: false, reason: reasonOf(error) };
  }
}

/** True when the guest's file systems are frozen now. @throws VirtkeepError as `guestCommand` */
export async function isFrozen(domain: Domain, signal?: AbortSignal): Promise<boolean> {
  return (await guestCommand(domain, 'guest-fsfreeze-status', {}, { signal })) === 'frozen';
}

/**
 * Makes sure that the guest is not frozen: asks, thaws, asks again, until the agent says "thawed". An agent that was
 * killed while frozen is waited for (it reports frozen again when it is back, and thaws). A guest that is off or has
 * no agent at all is not frozen.
 * @throws VirtkeepError guest_thaw_failed when the signal fires before
 */
export async function ensureThawed(domain: Domain, signal: AbortSignal, log: Logger): Promise<void> {
  let reason = 'it was not asked';
  for (let attempt = 1; ; attempt += 1) {
    if (signal.aborted)
      throw new VirtkeepError('guest_thaw_failed', { domain: domain.name || domain.uuid, reason });
    try {
      if (!(await domain.isActive())) return;
      if (!(await isFrozen(domain))) return;
      log.info('thawing the guest', { domain: domain.uuid, attempt });
      await domain.thaw({ urgent: true, timeoutMs: THAW_TIMEOUT_MS, signal });
      if (!(await isFrozen(domain))) return;
      reason = 'it still reports frozen';
    } catch (error) {
      if (isAbsent(error)) return;
      reason = reasonOf(error);
      if (attempt % 10 === 1)
        log.warn('the guest agent cannot be asked to thaw', { domain: domain.uuid, reason });
    }
    await sleep(RETRY_MS, signal).catch(() => {});
  }
}
