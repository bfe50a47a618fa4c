import type { EventEmitter } from 'node:events';
import type { CallArgs, CallName, CallResult } from './calls.ts';
import type { LibvirtEvents } from './events.ts';
import type { CallOptions, ConnectOptions } from './types.ts';
export declare class Connection {
  readonly uri: string;
  get connected(): boolean;
  constructor(uri: string, options: ConnectOptions, emitter: EventEmitter<LibvirtEvents>);
  open(): Promise<void>;
  close(): Promise<void>;
  call<N extends CallName>(
    name: N,
    target: readonly string[],
    args: CallArgs<N>,
    options?: CallOptions,
  ): Promise<CallResult<N>>;
}
