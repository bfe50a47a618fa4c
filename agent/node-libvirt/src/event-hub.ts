// The user's side of the event worker. libvirt has one event loop per process, so all connections of this module share
// one worker; the last one to leave ends it. A worker that dies is not replaced: libvirt still holds pointers to its
// callbacks, and another loop would run into them. Calls go on then, without events and keep-alive.

import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { LibvirtError, ownError } from './error.ts';
import {
  type EventName,
  type FromEventWorker,
  type OpenRequest,
  type ToEventWorker,
  workerUrl,
} from './messages.ts';

/** How long `stop` waits for the loop's next turn. */
const STOP_MS = 2000;

export interface EventSink {
  onEvent(event: EventName, data: unknown): void;
  /** The event connection is dead; `attach` again. */
  onLost(reason: string): void;
}

interface Attachment {
  sink: EventSink;
  attached: boolean;
  settle?: { resolve: () => void; reject: (error: LibvirtError) => void } | undefined;
}

export class EventHub {
  readonly #worker: Worker;
  readonly #ready = Promise.withResolvers<void>();
  readonly #exited = Promise.withResolvers<void>();
  readonly #attachments = new Map<number, Attachment>();
  #dead: LibvirtError | undefined;

  constructor() {
    this.#worker = new Worker(workerUrl('event'), { execArgv: [] });
    this.#worker.on('message', (message: FromEventWorker) => this.#receive(message));
    this.#worker.on('error', error => this.#die(error));
    this.#worker.on('exit', () => {
      this.#die(new Error('the event worker ended'));
      this.#exited.resolve();
    });
    this.#ready.promise.catch(() => {});
  }

  /** Resolves when connections may be opened. @throws LibvirtError kind `library` or `worker` */
  ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** Opens (or opens anew) the event connection `key` and its subscriptions. */
  attach(key: number, request: OpenRequest, sink: EventSink): Promise<void> {
    if (this.#dead) return Promise.reject(this.#dead);
    return new Promise((resolve, reject) => {
      this.#attachments.set(key, { sink, attached: false, settle: { resolve, reject } });
      this.#post({ attach: key, request });
    });
  }

  isAttached(key: number): boolean {
    return this.#attachments.get(key)?.attached ?? false;
  }

  detach(key: number): void {
    this.#settle(
      key,
      new LibvirtError(ownError('closed', 'the connection was closed'), 'virConnectOpenAuth'),
    );
    this.#attachments.delete(key);
    if (!this.#dead) this.#post({ detach: key });
  }

  /** Ends the worker; one that is stuck in libvirt ends when its call returns. */
  async stop(): Promise<void> {
    if (this.#dead) return;
    this.#post({ stop: true });
    await Promise.race([this.#exited.promise, delay(STOP_MS, undefined, { ref: false })]);
    this.#worker.unref();
  }

  #post(message: ToEventWorker): void {
    this.#worker.postMessage(message);
  }

  #settle(key: number, error?: LibvirtError): void {
    const attachment = this.#attachments.get(key);
    const settle = attachment?.settle;
    if (!attachment || !settle) return;
    attachment.settle = undefined;
    attachment.attached = error === undefined;
    if (error) settle.reject(error);
    else settle.resolve();
  }

  #receive(message: FromEventWorker): void {
    if ('ready' in message) this.#ready.resolve();
    else if ('attached' in message) this.#settle(message.attached);
    else if ('failed' in message) {
      this.#settle(message.failed, new LibvirtError(message.error, 'virConnectOpenAuth'));
    } else if ('lost' in message) this.#lose(message.lost, 'the event connection was lost');
    else this.#attachments.get(message.key)?.sink.onEvent(message.event, message.data);
  }

  #lose(key: number, reason: string): void {
    const attachment = this.#attachments.get(key);
    if (!attachment?.attached) return;
    attachment.attached = false;
    attachment.sink.onLost(reason);
  }

  #die(cause: unknown): void {
    if (this.#dead) return;
    const fields =
      (cause as { fields?: LibvirtError }).fields ?? ownError('worker', `event worker: ${cause}`);
    this.#dead = new LibvirtError(fields, 'virEventRegisterDefaultImpl', { cause });
    this.#ready.reject(this.#dead);
    for (const key of [...this.#attachments.keys()]) {
      this.#settle(key, this.#dead);
      this.#lose(key, 'the event worker ended');
    }
  }
}

let shared: { hub: EventHub; users: number } | undefined;

/** The hub, ready. Give it back with `releaseHub`. */
export async function acquireHub(): Promise<EventHub> {
  shared ??= { hub: new EventHub(), users: 0 };
  const held = shared;
  held.users++;
  try {
    await held.hub.ready();
  } catch (error) {
    await releaseHub(held.hub);
    throw error;
  }
  return held.hub;
}

/** Gives the hub back; the last user ends its worker. */
export async function releaseHub(hub: EventHub): Promise<void> {
  if (shared?.hub !== hub || --shared.users > 0) return;
  shared = undefined;
  await hub.stop();
}
