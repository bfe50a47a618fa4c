/** When what could not be delivered is tried again. Pure. */

const FIRST_DELAY_MS = 60_000;
export const MAX_DELAY_MS = 3_600_000;
/** The delays between so many attempts are three days together. */
export const MAX_ATTEMPTS = 78;

/**
 * After so many failed attempts, the last of them at this time: a minute, doubling, at most an hour.
 * @returns undefined when there is no further one
 */
export function nextAttempt(failedAttempts: number, now: Date): Date | undefined {
  if (failedAttempts >= MAX_ATTEMPTS) return undefined;
  const delayMs = Math.min(FIRST_DELAY_MS * 2 ** (failedAttempts - 1), MAX_DELAY_MS);
  return new Date(now.getTime() + delayMs);
}
