import type { EventEmitter } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { Caller } from './caller.ts';
import {
  CALLS,
  type CallArgs,
  type CallName,
  type CallResult,
  type CallSpec,
  type LaneName,
} from './calls.ts';
import { isLibvirtError, LibvirtError, ownError } from './error.ts';
import { acquireHub, type EventHub, releaseHub } from './event-hub.ts';
import type { LibvirtEvents } from './events.ts';
import { Lane } from './lane.ts';
import type { OpenRequest } from './messages.ts';
import type { CallOptions, ConnectOptions } from './types.ts';
import { WorkerPool } from './worker-pool.ts';

const DEFAULTS = {
  readOnly: false,
  keepAlive: { intervalSec: 5, count: 3 },
  shortTimeoutMs: 30_000,
  agentTimeoutMs: 0,
  longTimeoutMs: 0,
  reserveWorkers: 8,
  maxQueued: 1000,
  idleMs: 10_000,
  reconnect: { minMs: 200, maxMs: 10_000 },
  connectTimeoutMs: 15_000,
  events: true,
};
const WORKERS: Record<LaneName, number> = { short: 2, query: 2, agent: 4, long: 8 };
/** Bound of one attempt to reach a lost libvirtd. */
const PROBE_MS = 5000;

type Settings = ConnectOptions & typeof DEFAULTS;

let lastKey = 0;

/** The pool of workers behind one `Libvirt`: routes calls to lanes, watches the connection and restores it. */
export class Connection implements Caller {
  readonly uri: string;
  readonly #options: Settings;
  readonly #emitter: EventEmitter<LibvirtEvents>;
  readonly #request: OpenRequest;
  readonly #pool: WorkerPool;
  readonly #lanes: Record<LaneName, Lane>;
  readonly #key = ++lastKey;
  readonly #closing = new AbortController();
  #hub: EventHub | undefined;
  #state: 'opening' | 'connected' | 'lost' | 'closed' = 'opening';
  #closed: Promise<void> | undefined;

  constructor(uri: string, options: ConnectOptions, emitter: EventEmitter<LibvirtEvents>) {
    this.uri = uri;
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    this.#options = { ...DEFAULTS, ...(Object.fromEntries(given) as ConnectOptions) } as Settings;
    this.#emitter = emitter;
    const { readOnly, keepAlive, idleMs } = this.#options;
    this.#request = { uri, readOnly, keepAlive };
    this.#pool = new WorkerPool({ request: this.#request, idleMs, keep: 1 });
    this.#lanes = {
      short: this.#lane('short', this.#options.shortTimeoutMs),
      query: this.#lane('query', this.#options.shortTimeoutMs),
      agent: this.#lane('agent', this.#options.agentTimeoutMs),
      long: this.#lane('long', this.#options.longTimeoutMs),
    };
  }

  get connected(): boolean {
    return this.#state === 'connected';
  }

  /** Opens the first connection. On failure everything is closed again. */
  async open(): Promise<void> {
    const { connectTimeoutMs, signal } = this.#options;
    try {
      this.#hub = await acquireHub();
      await this.#probe(connectTimeoutMs, signal);
      this.#state = 'connected';
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  call<N extends CallName>(
    name: N,
    target: readonly string[],
    args: CallArgs<N>,
    options: CallOptions = {},
  ): Promise<CallResult<N>> {
    const spec: CallSpec = CALLS[name];
    const { signal, timeoutMs, urgent = spec.urgent ?? false } = options;
    const running = this.#lanes[spec.lane ?? 'short'].run({ name, target, args, urgent, signal, timeoutMs });
    return running.catch((error: unknown) => {
      if (isLibvirtError(error) && error.kind === 'connection') this.#lost(error.message);
      throw error;
    }) as Promise<CallResult<N>>;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#state = 'closed';
    this.#closing.abort();
    for (const lane of Object.values(this.#lanes)) lane.close();
    await this.#pool.close();
    if (!this.#hub) return;
    this.#hub.detach(this.#key);
    await releaseHub(this.#hub);
  }

  #lane(name: LaneName, timeoutMs: number): Lane {
    const { reserveWorkers: reserve, maxQueued, workers } = this.#options;
    const size = Math.max(1, workers?.[name] ?? WORKERS[name]);
    return new Lane({ size, reserve, maxQueued, timeoutMs, pool: this.#pool, uri: this.uri });
  }

  /** Makes sure that libvirtd answers and that the events are subscribed to. */
  async #probe(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const call = {
      name: 'virConnectGetLibVersion',
      target: [],
      args: [],
      urgent: true,
      signal,
      timeoutMs,
    } as const;
    await this.#lanes.short.run(call);
    if (!this.#options.events || !this.#hub) return;
    await this.#hub.attach(this.#key, this.#request, {
      onEvent: (event, data) => (this.#emitter as unknown as EventEmitter).emit(event, data),
      onLost: reason => this.#lost(reason),
    });
    if (!this.#hub.isAttached(this.#key)) {
      throw new LibvirtError(ownError('connection', 'the event connection was lost'), 'virConnectOpenAuth');
    }
  }

  #lost(reason: string): void {
    if (this.#state !== 'connected') return;
    this.#state = 'lost';
    void this.#reconnect();
    this.#emitter.emit('closed', { reason });
  }

  /** Tries again and again, the delay doubling up to its bound, until libvirtd answers or the owner closes. */
  async #reconnect(): Promise<void> {
    const { minMs, maxMs } = this.#options.reconnect;
    const { signal } = this.#closing;
    for (let waitMs = minMs; !signal.aborted; waitMs = Math.min(waitMs * 2, maxMs)) {
      try {
        await delay(waitMs, undefined, { signal });
        await this.#probe(PROBE_MS, signal);
        if (signal.aborted) return;
        this.#state = 'connected';
        this.#emitter.emit('reconnected');
        return;
      } catch {
        // Still away (or closing): the loop decides.
      }
    }
  }
}
