/**
 * Errors across gRPC. The table's key and parameters travel as google.rpc.ErrorInfo in the status details, so that
 * other clients read them with their standard libraries; the status code follows from the HTTP status of the key.
 */
import {
  ClientError,
  composeServerMiddleware,
  ServerError,
  type ServerMiddleware,
  Status,
} from 'nice-grpc-common';
import {
  ErrorInfo,
  errorDetailsServerMiddleware,
  RichClientError,
  RichServerError,
} from 'nice-grpc-error-details';
import { ERRORS, type ErrorKey, isErrorKey, isVirtkeepError, reasonOf, VirtkeepError } from './errors.ts';
import type { Error as ErrorMessage } from './gen/virtkeep/agent/v1/common.ts';

export const ERROR_DOMAIN = 'virtkeep';

/** What grpc-js throws, with no status, from a call on a channel that was closed a moment ago. */
const CHANNEL_CLOSED = 'Channel has been shut down';

const GRPC_BY_HTTP: Record<string, Status> = {
  '400': Status.INVALID_ARGUMENT,
  '401': Status.UNAUTHENTICATED,
  '403': Status.PERMISSION_DENIED,
  '404': Status.NOT_FOUND,
  '405': Status.UNIMPLEMENTED,
  '409': Status.FAILED_PRECONDITION,
  '412': Status.FAILED_PRECONDITION,
  '413': Status.RESOURCE_EXHAUSTED,
  '415': Status.INVALID_ARGUMENT,
  '416': Status.OUT_OF_RANGE,
  '429': Status.RESOURCE_EXHAUSTED,
  '460': Status.ABORTED,
  '499': Status.CANCELLED,
  '502': Status.ABORTED,
  '503': Status.UNAVAILABLE,
  '504': Status.DEADLINE_EXCEEDED,
};

/** Keys whose gRPC status says more than their HTTP status does. */
const GRPC_BY_KEY: Partial<Record<ErrorKey, Status>> = {
  operation_conflict: Status.ALREADY_EXISTS,
  idempotency_conflict: Status.ALREADY_EXISTS,
};

/** gRPC status of an error key. */
export function grpcStatus(key: ErrorKey): Status {
  return GRPC_BY_KEY[key] ?? GRPC_BY_HTTP[ERRORS[key].code.slice(0, 3)] ?? Status.INTERNAL;
}

/** The error as a message of the protocol (in operations). */
export function toErrorMessage(error: VirtkeepError): ErrorMessage {
  return { msgKey: error.msgKey, code: error.code, detail: error.message, params: error.params };
}

/** The error of a message of the protocol; a key this version does not know becomes `internal`. */
export function fromErrorMessage(message: ErrorMessage): VirtkeepError {
  if (isErrorKey(message.msgKey)) return new VirtkeepError(message.msgKey, message.params);
  return new VirtkeepError('internal', { request_id: '' }, { cause: new Error(message.detail) });
}

/** Server middleware: every VirtkeepError leaves as a rich status; anything unknown as `internal`, told to `report`. */
export function errorServerMiddleware(report: (error: unknown, method: string) => void): ServerMiddleware {
  return composeServerMiddleware(errorDetailsServerMiddleware, async function* (call, context) {
    try {
      return yield* call.next(call.request, context);
    } catch (error) {
      throw toServerError(error, call.method.path, report);
    }
  });
}

function toServerError(
  error: unknown,
  method: string,
  report: (error: unknown, method: string) => void,
): unknown {
  if (error instanceof ServerError || isAbort(error)) return error;
  if (!isVirtkeepError(error)) report(error, method);
  const failure = isVirtkeepError(error) ? error : new VirtkeepError('internal', { request_id: method });
  return new RichServerError(grpcStatus(failure.msgKey), failure.message, [
    ErrorInfo.fromPartial({ reason: failure.msgKey, domain: ERROR_DOMAIN, metadata: failure.params }),
  ]);
}

function isAbort(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'name' in error && error.name === 'AbortError';
}

/** The server is of an earlier version, which does not know the method. */
export function isUnimplemented(error: unknown): boolean {
  const cause = isVirtkeepError(error) ? error.cause : error;
  return cause instanceof ClientError && cause.code === Status.UNIMPLEMENTED;
}

/**
 * What a client is told of a failed call: rich statuses become VirtkeepErrors again; a lost or unready server `node_unreachable`, one of an
 * earlier version `node_outdated`.
 */
export function fromClientError(error: unknown, node: string): unknown {
  if (error instanceof RichClientError) {
    const info = error.extra.find(
      (detail): detail is ErrorInfo & { $type: string } => detail.$type === ErrorInfo.$type,
    );
    if (info?.domain === ERROR_DOMAIN && isErrorKey(info.reason)) {
      return new VirtkeepError(info.reason, info.metadata, { cause: error });
    }
  }
  if (reasonOf(error) === CHANNEL_CLOSED) {
    const reason = 'the connection was closed';
    return new VirtkeepError('node_unreachable', { node, reason }, { cause: error });
  }
  if (!(error instanceof ClientError)) return error;
  if (error.code === Status.DEADLINE_EXCEEDED) {
    return new VirtkeepError(
      'timed_out',
      { operation: error.path, seconds: 'the allowed time' },
      { cause: error },
    );
  }
  if (error.code === Status.UNIMPLEMENTED) {
    const method = error.path.split('/').at(-1)!;
    return new VirtkeepError('node_outdated', { node, method }, { cause: error });
  }
  if (error.code === Status.CANCELLED) return new VirtkeepError('canceled', {}, { cause: error });
  return new VirtkeepError('node_unreachable', { node, reason: error.details }, { cause: error });
}
