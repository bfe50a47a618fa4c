// The event worker: the one thread of the process that runs libvirt's event loop. It serves the keep-alive of every
// connection in the process, so it must be ready before any is opened, and holds one connection per user for its events.

import { parentPort } from 'node:worker_threads';
import { type ErrorFields, ownError } from '../error.ts';
import type { FromEventWorker, OpenRequest, ToEventWorker } from '../messages.ts';
import { type Subscriptions, subscribe, unsubscribe } from './event-callbacks.ts';
import {
  closeConnection,
  initialize,
  isAlive,
  lastError,
  NativeError,
  native,
  noop,
  openConnection,
  type Pointer,
} from './native.ts';

/** The loop wakes at least so often, to look for messages and dead connections. */
const TURN_MS = 100;

const port = parentPort!;
const connections = new Map<number, { conn: Pointer; subscriptions: Subscriptions }>();
let stopping = false;

function send(message: FromEventWorker): void {
  port.postMessage(message);
}

function fieldsOf(error: unknown): ErrorFields {
  return error instanceof NativeError ? error.fields : ownError('worker', String(error));
}

function attach(key: number, request: OpenRequest): void {
  detach(key);
  try {
    const conn = openConnection(request);
    try {
      connections.set(key, {
        conn,
        subscriptions: subscribe(conn, (event, data) => send({ key, event, data })),
      });
    } catch (error) {
      closeConnection(conn);
      throw error;
    }
    send({ attached: key });
  } catch (error) {
    send({ failed: key, error: fieldsOf(error) });
  }
}

function detach(key: number): void {
  const held = connections.get(key);
  if (!held) return;
  connections.delete(key);
  unsubscribe(held.conn, held.subscriptions);
  closeConnection(held.conn);
}

function turn(): void {
  if (stopping) return;
  const failed = (native('virEventRunDefaultImpl', 'int', [])() as number) < 0;
  for (const [key, { conn }] of connections) {
    if (isAlive(conn)) continue;
    detach(key);
    send({ lost: key });
  }
  // A loop that cannot run must not spin.
  if (failed) setTimeout(turn, TURN_MS);
  else setImmediate(turn);
}

function start(): number {
  initialize();
  if ((native('virEventRegisterDefaultImpl', 'int', [])() as number) < 0) throw lastError('no event loop');
  const addTimeout = native('virEventAddTimeout', 'int', ['int', 'void *', 'void *', 'void *']);
  const timer = addTimeout(TURN_MS, noop(), null, null) as number;
  if (timer < 0) throw lastError('no event timer');
  return timer;
}

const timer = start();
port.on('message', (message: ToEventWorker) => {
  if ('attach' in message) attach(message.attach, message.request);
  else if ('detach' in message) detach(message.detach);
  else {
    stopping = true;
    for (const key of [...connections.keys()]) detach(key);
    native('virEventRemoveTimeout', 'int', ['int'])(timer);
    port.close();
  }
});
send({ ready: true });
turn();
