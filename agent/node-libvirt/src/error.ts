import { ErrorCode, ErrorDomain } from './constants.ts';

/**
 * Where an error was made:
 * - `libvirt`: libvirt answered with an error; code and domain are its own;
 * - `connection`: the connection could not be opened, or was lost while the call ran; code and domain are libvirt's (38/7, 1/7, …);
 * - `timeout`, `aborted`: the caller gave up waiting; **a call that has begun goes on in libvirt** (68/0, 78/0);
 * - `busy`: too many calls are waiting already (87/0); `closed`: the connection was closed by its owner (6/0);
 * - `library`: libvirt.so.0 or libvirt-qemu.so.0 cannot be loaded (3/0); `worker`: a worker thread died (1/0).
 */
export type ErrorKind =
  | 'libvirt'
  | 'connection'
  | 'timeout'
  | 'aborted'
  | 'busy'
  | 'closed'
  | 'library'
  | 'worker';

/** The fields of an error, as they cross the border between threads. */
export interface ErrorFields {
  code: number;
  domain: number;
  message: string;
  /** 1 warning, 2 error (virErrorLevel). */
  level: number;
  kind: ErrorKind;
}

export interface LibvirtErrorOptions extends ErrorOptions {
  /** The connection that was asked. */
  uri?: string;
}

/** The only error this package throws. `call` is the libvirt function that was asked for. */
export class LibvirtError extends Error {
  override readonly name: string = 'LibvirtError';
  readonly code: number;
  readonly domain: number;
  readonly level: number;
  readonly kind: ErrorKind;
  readonly call: string;
  /** The connection's URI, as it was given. Not known of events. */
  readonly uri: string | undefined;

  constructor(fields: ErrorFields, call: string, options?: LibvirtErrorOptions) {
    super(fields.message, options);
    this.code = fields.code;
    this.domain = fields.domain;
    this.level = fields.level;
    this.kind = fields.kind;
    this.call = call;
    this.uri = options?.uri;
  }

  /** True when the error is libvirt's own `code` (and `domain`, when given). */
  is(code: number, domain?: number): boolean {
    return this.kind === 'libvirt' && this.code === code && (domain === undefined || this.domain === domain);
  }
}

const OWN_CODES: Record<Exclude<ErrorKind, 'libvirt'>, number> = {
  connection: ErrorCode.NO_CONNECT,
  timeout: ErrorCode.OPERATION_TIMEOUT,
  aborted: ErrorCode.OPERATION_ABORTED,
  busy: ErrorCode.RESOURCE_BUSY,
  closed: ErrorCode.INVALID_CONN,
  library: ErrorCode.NO_SUPPORT,
  worker: ErrorCode.INTERNAL_ERROR,
};

/** An error of this package itself, in the form of libvirt's. */
export function ownError(kind: Exclude<ErrorKind, 'libvirt'>, message: string): ErrorFields {
  return { code: OWN_CODES[kind], domain: ErrorDomain.NONE, message, level: 2, kind };
}

/** Tells a LibvirtError from others, also across realms (test runners, several copies of the package). */
export function isLibvirtError(error: unknown): error is LibvirtError {
  return typeof error === 'object' && error !== null && (error as Error).name === 'LibvirtError';
}
