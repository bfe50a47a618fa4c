// What crosses the border between the user's thread and the workers: plain data only.

import type { CallName } from './calls.ts';
import type { ErrorFields } from './error.ts';
import type { LibvirtEvents } from './events.ts';

/** How a worker opens its connection. */
export interface OpenRequest {
  uri: string;
  readOnly: boolean;
  keepAlive: { intervalSec: number; count: number };
}

export interface CallRequest {
  id: number;
  name: CallName;
  target: readonly string[];
  args: readonly unknown[];
  gate: Gate;
}

/** One shared number that decides a race: a call either begins in its worker, or was given up before and never begins. */
export type Gate = Int32Array<SharedArrayBuffer>;
const OPEN = 0;
const BEGUN = 1;
const GIVEN_UP = 2;

export function newGate(): Gate {
  return new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
}

/** In the worker, right before libvirt is asked. False: nobody wants the call any more. */
export function begin(gate: Gate): boolean {
  return Atomics.compareExchange(gate, 0, OPEN, BEGUN) === OPEN;
}

/** On the caller's side. */
export function giveUp(gate: Gate): void {
  Atomics.compareExchange(gate, 0, OPEN, GIVEN_UP);
}

/** To a call worker. After `close` it closes its connection and ends. */
export type ToCallWorker = { call: CallRequest } | { close: true };

/** From a call worker: exactly one per call. */
export type FromCallWorker = { id: number; value: unknown } | { id: number; error: ErrorFields };

/** To the event worker; `key` names one connection of the user's thread. */
export type ToEventWorker = { attach: number; request: OpenRequest } | { detach: number } | { stop: true };

export type EventName = Exclude<keyof LibvirtEvents, 'closed' | 'reconnected'>;

/** From the event worker. `ready`: the event loop is registered and connections may be opened. */
export type FromEventWorker =
  | { ready: true }
  | { attached: number }
  | { failed: number; error: ErrorFields }
  | { lost: number }
  | { key: number; event: EventName; data: unknown };

/** The file of a worker beside its caller: .ts as it stands, .js when built. */
export function workerUrl(name: string): URL {
  const suffix = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  return new URL(`./worker/${name}.worker.${suffix}`, import.meta.url);
}
