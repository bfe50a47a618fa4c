/** The guest's agent as a backup needs it: does it answer, are the file systems frozen, thaw them. */
import { type Domain, isLibvirtError } from '@virtkeep/node-libvirt';
import { sleep } from '@virtkeep/shared/abort';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';

/** Time for one answer, seconds. A healthy agent takes 5–20 ms; a busy emulated guest some hundred. */
const ANSWER_TIMEOUT_SEC = 5;
const RETRY_MS = 1000;

/** Whether the agent answers a ping now. Never throws: an agent that cannot be asked does not answer. */
export async function probeAgent(
  domain: Domain,
): Promise<{ answers: true } | { answers: false; reason: string }> {
  try {
    await ask(domain, 'guest-ping');
    return { answers: true };
  } catch (error) {
    return { answers: false, reason: reasonOf(error) };
  }
}

/** True when the guest's file systems are frozen now. @throws LibvirtError */
export async function isFrozen(domain: Domain): Promise<boolean> {
  return (await ask(domain, 'guest-fsfreeze-status')) === 'frozen';
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
      await domain.thaw({ urgent: true });
      if (!(await isFrozen(domain))) return;
      reason = 'it still reports frozen';
    } catch (error) {
      if (isGone(error)) return;
      reason = reasonOf(error);
      if (attempt % 10 === 1)
        log.warn('the guest agent cannot be asked to thaw', { domain: domain.uuid, reason });
    }
    await sleep(RETRY_MS, signal).catch(() => {});
  }
}

async function ask(domain: Domain, command: string): Promise<unknown> {
  const answer = await domain.agentCommand(JSON.stringify({ execute: command }), ANSWER_TIMEOUT_SEC);
  return (JSON.parse(answer) as { return: unknown }).return;
}

const NO_DOMAIN = 42;
const OPERATION_INVALID = 55;
const ARGUMENT_UNSUPPORTED = 74;

/** The domain does not exist, is off (55), or has no agent channel (74: "QEMU guest agent is not configured"). */
function isGone(error: unknown): boolean {
  return (
    isLibvirtError(error) &&
    (error.is(NO_DOMAIN) || error.is(OPERATION_INVALID) || error.is(ARGUMENT_UNSUPPORTED))
  );
}
