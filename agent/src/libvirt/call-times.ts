/**
 * How long libvirt may take to answer. A call that never returns would keep its operation for ever, and with it the domain's locks. What
 * goes on in libvirt although nobody waits for it any more is seen by looking again, as after a lost connection.
 */

/**
 * For calls that do not say themselves how long they may take, ms. One that waits for QEMU ends in seconds, but while its storage hangs; one
 * that asks the guest, within the time that its agent has to freeze.
 */
export const CALL_TIMES = { longTimeoutMs: 300_000, agentTimeoutMs: 90_000 };

/** Of a start, ms: QEMU may read the memory of a large guest before. */
export const START_TIMEOUT_MS = 1_800_000;

/** Of a state without memory, ms: the guest may take a minute to freeze, and QEMU has to write what is in its caches. */
export const STATE_TIMEOUT_MS = 600_000;
