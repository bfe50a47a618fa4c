/**
 * What a worker thread reports when it cannot go on. Plain data, because error objects do not cross threads whole;
 * the main thread turns it into the product's error with the path it knows.
 */
export interface Fault {
  kind: 'canceled' | 'source_io' | 'target_io' | 'source_short' | 'corrupt' | 'unsupported' | 'internal';
  /** errno name, for the io kinds. */
  code?: string;
  reason: string;
}

/** Carries a fault up to the worker's message loop. */
export class FaultError extends Error {
  readonly fault: Fault;

  constructor(fault: Fault) {
    super(fault.reason);
    this.fault = fault;
  }
}

export const canceledFault = (): FaultError => new FaultError({ kind: 'canceled', reason: 'cancelled' });

/** Anything thrown as plain data that can cross to another thread. */
export function faultOf(error: unknown): Fault {
  if (error instanceof FaultError) return error.fault;
  const { code, message } = error as { code?: string; message?: string };
  return { kind: 'internal', reason: String(message ?? error), ...(code === undefined ? {} : { code }) };
}

/** Runs I/O on one side and marks its failures with that side. */
export function attributed<T>(kind: 'source_io' | 'target_io', work: () => T): T {
  try {
    return work();
  } catch (error) {
    const { code, message } = error as { code?: string; message?: string };
    const reason = String(message ?? error);
    throw new FaultError({ kind, reason, ...(code === undefined ? {} : { code }) });
  }
}
