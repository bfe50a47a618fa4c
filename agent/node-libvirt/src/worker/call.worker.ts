// A call worker: one thread, one connection, one libvirt call at a time. The connection is opened at the first call and
// anew when it has died.

import { parentPort, workerData } from 'node:worker_threads';
import { ErrorCode } from '../constants.ts';
import { type ErrorFields, ownError } from '../error.ts';
import {
  begin,
  type CallRequest,
  type FromCallWorker,
  type OpenRequest,
  type ToCallWorker,
} from '../messages.ts';
import { forgetDomains, invoke } from './marshal.ts';
import { closeConnection, initialize, isAlive, NativeError, openConnection, type Pointer } from './native.ts';

const port = parentPort!;
const request = workerData as OpenRequest;
let conn: Pointer | null = null;

function connection(): Pointer {
  if (conn && !isAlive(conn)) drop();
  if (!conn) {
    initialize();
    conn = openConnection(request);
  }
  return conn;
}

function drop(): void {
  forgetDomains();
  if (conn) closeConnection(conn);
  conn = null;
}

/** The error of a call; `connection` when the connection died under it. */
function fieldsOf(error: unknown): ErrorFields {
  if (!(error instanceof NativeError)) {
    // A wrong argument: libvirt was not asked.
    return {
      code: ErrorCode.INVALID_ARG,
      domain: 0,
      level: 2,
      kind: 'libvirt',
      message: (error as Error).message,
    };
  }
  if (error.fields.kind === 'libvirt' && conn && !isAlive(conn)) {
    drop();
    return { ...error.fields, kind: 'connection' };
  }
  return error.fields;
}

function answer(call: CallRequest): FromCallWorker {
  try {
    const conn = connection();
    if (!begin(call.gate)) return { id: call.id, error: ownError('aborted', 'given up before it began') };
    return { id: call.id, value: invoke(conn, call.name, call.target, call.args) };
  } catch (error) {
    return { id: call.id, error: fieldsOf(error) };
  }
}

port.on('message', (message: ToCallWorker) => {
  if ('call' in message) {
    port.postMessage(answer(message.call));
    return;
  }
  drop();
  port.close();
});
