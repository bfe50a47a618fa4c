/** Restarts a guest in an orderly way, by its agent, and waits until it is up again. */
import { sleep, withTimeout } from '@virtkeep/shared/abort';
import { hasKey, reasonOf } from '@virtkeep/shared/errors';
import type { OperationContext } from '../context.ts';
import { type Guest, operationFailed, type Program } from './guest.ts';
import { powershell, READ_BOOT } from './windows.ts';

/** Windows may install updates at a restart; then the operation ends with a warning, and the guest goes on. */
const PATIENCE_MS = 900_000;
const RETRY_MS = 2_000;
const LOOK_TIMEOUT_MS = 30_000;

/** What is another after each start of the guest. */
const BOOT_MARK: Record<'linux' | 'windows', Program> = {
  linux: { path: '/bin/cat', args: ['/proc/sys/kernel/random/boot_id'], timeoutMs: LOOK_TIMEOUT_MS },
  windows: powershell(READ_BOOT, {}, LOOK_TIMEOUT_MS),
};

/**
 * Restarts the guest. What was done before stands whether it restarts or not, so a guest that is not back in time is a
 * warning of the operation.
 * @returns whether it was seen to have restarted
 * @throws canceled
 */
export async function restartGuest(
  context: OperationContext,
  guest: Guest,
  system: 'linux' | 'windows',
  patienceMs = PATIENCE_MS,
): Promise<boolean> {
  try {
    const before = await markOf(guest, system);
    await guest.command('guest-shutdown', { mode: 'reboot' });
    context.progress.message('The guest restarts.');
    await withTimeout(`The restart of ${guest.name}`, patienceMs, context.signal, inner =>
      untilRestarted(guest, system, before, inner),
    );
    return true;
  } catch (error) {
    if (context.signal.aborted || hasKey(error, 'canceled')) throw error;
    context.warn(`The guest was not seen to restart: ${reasonOf(error)}`);
    return false;
  }
}

async function untilRestarted(
  guest: Guest,
  system: 'linux' | 'windows',
  before: string,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    await sleep(RETRY_MS, signal);
    try {
      if ((await markOf(guest, system)) !== before) return;
    } catch (error) {
      // a guest that restarts cannot be asked
      if (hasKey(error, 'domain_not_found')) throw error;
    }
  }
}

async function markOf(guest: Guest, system: 'linux' | 'windows'): Promise<string> {
  const { out, exitCode } = await guest.run(BOOT_MARK[system]);
  if (exitCode !== 0 || out.trim() === '')
    throw operationFailed(guest, 'the restart', 'it does not tell when it was started');
  return out.trim();
}
