/** libvirt's errors as the product's, and what to do when the daemon goes away in the middle. */
import { isLibvirtError } from '@virtkeep/node-libvirt';
import { sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { isVirtkeepError, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';

/** libvirt's "no domain with matching uuid". */
const NO_DOMAIN = 42;
/** libvirt's "cannot acquire state change lock": another call holds the domain. */
const LOCK_TIMEOUT = 68;

/** A libvirt error as `libvirt_failed` with the call's name; a VirtkeepError as it is. */
export function fromLibvirt(error: unknown, call: string): VirtkeepError {
  if (isVirtkeepError(error)) return error;
  const name = isLibvirtError(error) && error.call ? error.call : call;
  return new VirtkeepError('libvirt_failed', { call: name, reason: reasonOf(error) }, { cause: error });
}

export const isNoDomain = (error: unknown): boolean => isLibvirtError(error) && error.is(NO_DOMAIN);

/** The connection to libvirtd was lost, or the domain is held by another call: the same call may work in a moment. */
export function isPassing(error: unknown): boolean {
  if (!isLibvirtError(error)) return false;
  return (
    error.kind === 'connection' || error.kind === 'busy' || error.kind === 'timeout' || error.is(LOCK_TIMEOUT)
  );
}

/** Tries again every second while libvirtd is away or the domain is held by another call, until the signal fires. */
export async function patiently<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  for (;;) {
    throwIfAborted(signal);
    try {
      return await work();
    } catch (error) {
      if (!isPassing(error)) throw error;
    }
    await sleep(1000, signal);
  }
}
