/** The clock of a guest that goes on where its memory was saved: it stands as far back as that is ago. */
import type { Domain } from '@virtkeep/node-libvirt';
import { sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { reasonOf } from '@virtkeep/shared/errors';

/** How long the agent is asked. One that ran when the memory was saved answers in the first second. */
const PATIENCE_MS = 10_000;
const ANSWER_TIMEOUT_SEC = 5;
const RETRY_MS = 500;
/** A difference that is no lag: the answer takes its time, and a busy guest more. */
const TOLERANCE_MS = 3_000;

/**
 * Sets the guest's clock by its agent as soon as that answers.
 * @returns why the clock could not be set, or null
 * @throws canceled
 */
export async function correctGuestClock(
  domain: Domain,
  signal: AbortSignal,
  patienceMs = PATIENCE_MS,
): Promise<string | null> {
  const until = Date.now() + patienceMs;
  for (;;) {
    throwIfAborted(signal);
    const reason = await attempt(domain);
    if (reason === null || Date.now() >= until) return reason;
    await sleep(RETRY_MS, signal);
  }
}

/** Sets it and looks: some guests have set it although they report that their hardware clock could not be. */
async function attempt(domain: Domain): Promise<string | null> {
  try {
    const nanoseconds = BigInt(Date.now()) * 1_000_000n;
    const failure = await ask(
      domain,
      `{"execute":"guest-set-time","arguments":{"time":${nanoseconds}}}`,
    ).then(() => null, reasonOf);
    const lag = Date.now() - Number(await ask(domain, '{"execute":"guest-get-time"}')) / 1e6;
    if (Math.abs(lag) <= TOLERANCE_MS) return null;
    return failure ?? `it is ${Math.round(lag / 1000)} s behind`;
  } catch (error) {
    return reasonOf(error);
  }
}

async function ask(domain: Domain, command: string): Promise<unknown> {
  const answer = await domain.agentCommand(command, ANSWER_TIMEOUT_SEC);
  return (JSON.parse(answer) as { return: unknown }).return;
}
