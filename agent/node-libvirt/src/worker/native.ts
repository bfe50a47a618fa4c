// libvirt.so.0 through koffi. Runs in workers only: calls are synchronous, and virGetLastError is per thread, so the error
// of a call is read in the same thread before anything else is asked. Pointers are bigints and never leave the worker.

import koffi, { type LibraryHandle, type TypeObject } from 'koffi';
import { ErrorCode } from '../constants.ts';
import { type ErrorFields, ownError } from '../error.ts';
import type { OpenRequest } from '../messages.ts';
import { checkNumber, checkString } from './check.ts';

export type Pointer = bigint;
export type NativeFunction = (...args: unknown[]) => unknown;

/** An error on its way to the caller's thread. */
export class NativeError extends Error {
  readonly fields: ErrorFields;

  constructor(fields: ErrorFields) {
    super(fields.message);
    this.fields = fields;
  }
}

const VIR_ERROR = koffi.struct({
  code: 'int',
  domain: 'int',
  message: 'str',
  level: 'int',
  conn: 'void *',
  dom: 'void *',
  str1: 'void *',
  str2: 'void *',
  str3: 'void *',
  int1: 'int',
  int2: 'int',
  net: 'void *',
});
const VIR_UUID_STRING_BYTES = 37;
const VIR_CONNECT_RO = 1;

const libraries = new Map<string, LibraryHandle>();
const functions = new Map<string, NativeFunction>();

function library(file: string): LibraryHandle {
  let handle = libraries.get(file);
  if (!handle) {
    try {
      handle = koffi.load(file);
    } catch (cause) {
      const text = `cannot load ${file}: is libvirt's client library installed (Debian: libvirt0)? ${(cause as Error).message}`;
      throw new NativeError(ownError('library', text));
    }
    libraries.set(file, handle);
  }
  return handle;
}

/** A C function, looked up once per worker. @throws NativeError kind `library` when library or function is missing. */
export function native(
  name: string,
  returns: string | TypeObject,
  args: (string | TypeObject)[],
  file = 'libvirt.so.0',
): NativeFunction {
  let found = functions.get(name);
  if (!found) {
    const handle = library(file);
    try {
      found = handle.func(name, returns, args) as NativeFunction;
    } catch (cause) {
      throw new NativeError(ownError('library', `${file} has no ${name}: ${(cause as Error).message}`));
    }
    functions.set(name, found);
  }
  return found;
}

/**
 * Address of a C function that ignores its arguments and does nothing: the handler for what libvirt wants to tell from any
 * thread. A JS function must never stand there (it may only run on its own thread).
 */
export function noop(): Pointer {
  return library('libc.so.6').symbol('getpid') as Pointer;
}

/** Loads libvirt and keeps it from writing errors to stderr. Idempotent, for the whole process. */
export function initialize(): void {
  if (native('virInitialize', 'int', [])() !== 0) throw lastError('virInitialize failed');
  native('virSetErrorFunc', 'void', ['void *', 'void *'])(null, noop());
}

/** The error of the call just made in this thread. Read it before any other call. */
export function lastError(fallback: string): NativeError {
  const pointer = native('virGetLastError', 'void *', [])() as Pointer | null;
  if (!pointer) return new NativeError({ ...ownError('worker', fallback), kind: 'libvirt' });
  const raw = koffi.decode(pointer, VIR_ERROR) as {
    code: number;
    domain: number;
    message: string | null;
    level: number;
  };
  const { code, domain, level } = raw;
  return new NativeError({ code, domain, level, message: raw.message ?? fallback, kind: 'libvirt' });
}

// Connections ----------------------------------------------------------------------------------------------------------

/** Opens a connection with keep-alive. @throws NativeError kind `connection` */
export function openConnection(request: OpenRequest): Pointer {
  const intervalSec = checkNumber('int', request.keepAlive.intervalSec);
  const count = checkNumber('uint', request.keepAlive.count);
  const open = native('virConnectOpenAuth', 'void *', ['str', 'void *', 'uint']);
  const conn = open(checkString(request.uri), null, request.readOnly ? VIR_CONNECT_RO : 0) as Pointer | null;
  if (!conn) throw asConnectionError(lastError('virConnectOpenAuth failed'));
  const keepAlive = native('virConnectSetKeepAlive', 'int', ['void *', 'int', 'uint']);
  if ((keepAlive(conn, intervalSec, count) as number) < 0) {
    const error = lastError('virConnectSetKeepAlive failed');
    // Drivers inside the library (test:///default) have nothing to keep alive.
    if (error.fields.code === ErrorCode.NO_SUPPORT) return conn;
    closeConnection(conn);
    throw asConnectionError(error);
  }
  return conn;
}

function asConnectionError(error: NativeError): NativeError {
  return new NativeError({ ...error.fields, kind: 'connection' });
}

export function closeConnection(conn: Pointer): void {
  native('virConnectClose', 'int', ['void *'])(conn);
}

/** Whether the connection still stands; asks nothing of the daemon. */
export function isAlive(conn: Pointer): boolean {
  return native('virConnectIsAlive', 'int', ['void *'])(conn) === 1;
}

// Handles --------------------------------------------------------------------------------------------------------------

export type HandleKind = 'domain' | 'snapshot' | 'pool' | 'network' | 'vol';

const FREE = {
  domain: 'virDomainFree',
  snapshot: 'virDomainSnapshotFree',
  pool: 'virStoragePoolFree',
  network: 'virNetworkFree',
  vol: 'virStorageVolFree',
} as const;

export function freeHandle(kind: HandleKind, handle: Pointer): void {
  native(FREE[kind], 'int', ['void *'])(handle);
}

/** The uuid behind a domain's or pool's handle; asks nothing of the daemon. */
export function uuidOf(kind: 'domain' | 'pool', handle: Pointer): string {
  const buffer = Buffer.alloc(VIR_UUID_STRING_BYTES);
  const name = kind === 'domain' ? 'virDomainGetUUIDString' : 'virStoragePoolGetUUIDString';
  if ((native(name, 'int', ['void *', 'void *'])(handle, buffer) as number) < 0)
    throw lastError(`${name} failed`);
  return buffer.toString('latin1', 0, VIR_UUID_STRING_BYTES - 1);
}

const NAME = {
  domain: 'virDomainGetName',
  snapshot: 'virDomainSnapshotGetName',
  pool: 'virStoragePoolGetName',
  network: 'virNetworkGetName',
  vol: 'virStorageVolGetName',
} as const;

/** The name behind a handle; the string belongs to the handle. */
export function nameOfHandle(kind: HandleKind, handle: Pointer): string {
  const name = native(NAME[kind], 'str', ['void *'])(handle) as string | null;
  if (name === null) throw lastError(`${NAME[kind]} failed`);
  return name;
}
