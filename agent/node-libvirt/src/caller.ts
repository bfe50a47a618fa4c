import type { CallArgs, CallName, CallResult } from './calls.ts';
import type { CallOptions } from './types.ts';

/** What the facade needs of the pool: run one libvirt function on a target (uuid, name) and give its result. */
export interface Caller {
  call<N extends CallName>(
    name: N,
    target: readonly string[],
    args: CallArgs<N>,
    options?: CallOptions,
  ): Promise<CallResult<N>>;
}
