/** libvirt's errors as the product's, the same everywhere, and what to do when the daemon goes away in the middle. */
import { ErrorCode, isLibvirtError } from '@virtkeep/node-libvirt';
import { sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { isVirtkeepError, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';

/** Whether libvirt itself answered with that code. */
export const isAnswer = (error: unknown, code: number): boolean => isLibvirtError(error) && error.is(code);

/** libvirt knows no such domain, or not any more. */
export const isNoDomain = (error: unknown): boolean => isAnswer(error, ErrorCode.NO_DOMAIN);

/** The domain has no such saved state, or not any more. */
export const isNoSnapshot = (error: unknown): boolean => isAnswer(error, ErrorCode.NO_DOMAIN_SNAPSHOT);

/** libvirt 9.0 lists no states of a domain while it makes one, which has no name yet (measured). */
export const isUnlistable = (error: unknown): boolean => isAnswer(error, ErrorCode.INVALID_ARG);

/**
 * Nothing more can be plugged into the running domain. libvirt's words are in the language of its daemon, and the bus has one name in all
 * of them; what QEMU refuses names its command, and may name a file.
 */
export const hasNoSlot = (error: unknown): boolean =>
  isAnswer(error, ErrorCode.INTERNAL_ERROR) && /^(?!.*(?:_add|-add|\/)).*\bPCI\b/s.test(reasonOf(error));

/**
 * The error as the product's: `libvirt_unreachable` when the connection is what failed, `canceled` when the caller stopped
 * waiting, else `libvirt_failed` with the call's name. A VirtkeepError stays as it is.
 * @param call what is named when the error does not name it itself
 */
export function fromLibvirt(error: unknown, call: string): VirtkeepError {
  if (isVirtkeepError(error)) return error;
  const options = { cause: error };
  const reason = reasonOf(error);
  if (!isLibvirtError(error)) return new VirtkeepError('libvirt_failed', { call, reason }, options);
  const { kind, uri = 'this node' } = error;
  if (kind === 'aborted') return new VirtkeepError('canceled', {}, options);
  if (kind === 'connection' || kind === 'closed' || kind === 'busy')
    return new VirtkeepError('libvirt_unreachable', { uri, reason }, options);
  return new VirtkeepError('libvirt_failed', { call: error.call || call, reason }, options);
}

/** The connection to libvirtd was lost, or the domain is held by another call: the same call may work in a moment. */
export function isPassing(error: unknown): boolean {
  if (!isLibvirtError(error)) return false;
  const { kind } = error;
  // OPERATION_TIMEOUT as libvirt's own answer: "cannot acquire state change lock"
  return (
    kind === 'connection' || kind === 'busy' || kind === 'timeout' || error.is(ErrorCode.OPERATION_TIMEOUT)
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
