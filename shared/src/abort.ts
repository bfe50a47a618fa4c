import { VirtkeepError } from './errors.ts';

/** Throws the table's `canceled` (or the signal's own VirtkeepError reason) when the signal has fired. */
export function throwIfAborted(signal: AbortSignal): void {
  if (signal.aborted) throw abortReason(signal);
}

/** The error a fired signal stands for: its reason when that is a VirtkeepError, else `canceled`. */
export function abortReason(signal: AbortSignal): VirtkeepError {
  return signal.reason instanceof VirtkeepError ? signal.reason : new VirtkeepError('canceled');
}

/** Waits, or rejects with the abort reason as soon as the signal fires. */
export function sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(abortReason(signal));
    const onAbort = () => {
      clearTimeout(timer);
      reject(abortReason(signal!));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    }, delayMs);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** Settles like `promise`, but rejects with the abort reason when the signal fires first. The work itself goes on. */
export function orAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    promise.catch(() => {});
    return Promise.reject(abortReason(signal));
  }
  return new Promise<T>((resolve, reject) => {
    const onAbort = () => reject(abortReason(signal));
    signal.addEventListener('abort', onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

/** Rejects with `timed_out` when `work` takes longer; `work` gets a signal that fires then, or with the outer one. */
export async function withTimeout<T>(
  operation: string,
  timeoutMs: number,
  outer: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const inner = new AbortController();
  const onAbort = () => inner.abort(abortReason(outer));
  if (outer.aborted) onAbort();
  outer.addEventListener('abort', onAbort, { once: true });
  const timer = setTimeout(
    () => inner.abort(new VirtkeepError('timed_out', { operation, seconds: timeoutMs / 1000 })),
    timeoutMs,
  );
  try {
    return await orAborted(work(inner.signal), inner.signal);
  } finally {
    clearTimeout(timer);
    outer.removeEventListener('abort', onAbort);
  }
}
