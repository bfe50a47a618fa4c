/**
 * Every failure leaves as the one envelope: the table's keys, what to do, the request id; never a stack. Fastify's and
 * ajv's own errors become keys of the table here, and nowhere else.
 */
import type { Socket } from 'node:net';
import { isVirtkeepError, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import type { FastifyError, FastifyReply, FastifyRequest, FastifySchemaValidationError } from 'fastify';
import { GIVEN_UUID_PATTERN } from './schemas/common.ts';

const JSON_TYPE = 'application/json; charset=utf-8';

/** Stands in an answer to a request for which nothing was done: another controller may be asked. */
export const ASK_ANOTHER = 'x-virtkeep-ask-another';

/** Several faults of one request, answered together. */
export class RequestErrors extends Error {
  override readonly name = 'RequestErrors';
  readonly errors: VirtkeepError[];

  constructor(errors: VirtkeepError[]) {
    super(errors.map(error => error.message).join(' '));
    this.errors = errors;
  }
}

export interface ErrorEnvelope {
  errors: { code: string; detail: string; msg_key: string; field?: string }[];
  detail: string;
  request_id: string;
}

export function envelope(errors: readonly VirtkeepError[], requestId: string): ErrorEnvelope {
  return {
    errors: errors.map(error => ({
      code: error.code,
      detail: error.message,
      msg_key: error.msgKey,
      ...(error.field === undefined ? {} : { field: error.field }),
    })),
    detail: errors.map(error => error.message).join(' '),
    request_id: requestId,
  };
}

/** The error handler of the server. Errors nobody foresaw are logged with their stack and leave as `internal`. */
export function errorHandler(log: Logger) {
  return (error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply => {
    const mapped =
      reply.raw.destroyed && isAbort(error) ? [new VirtkeepError('canceled')] : knownErrors(error, request);
    if (mapped === undefined)
      log.error('request failed', { error, request_id: request.id, url: request.url });
    const errors = mapped ?? [new VirtkeepError('internal', { request_id: request.id })];
    const first = errors[0]!;
    request.errorKey = first.msgKey;
    if (first.status === 401) reply.header('www-authenticate', 'jwt');
    if (first.params.seconds !== undefined && first.status === 429) {
      reply.header('retry-after', first.params.seconds);
    }
    return reply.code(first.status).type(JSON_TYPE).send(envelope(errors, request.id));
  };
}

/**
 * The handler of what Fastify refuses before any hook runs, such as an address that cannot be read.
 * - The hook that counts requests has not run, so this one is counted here: a flood of them would be free otherwise.
 * - When that finds too many, its refusal (429) is the answer in place of Fastify's.
 * - The hooks that keep unread bodies from holding a connection do not run either, so the connection ends with the answer.
 */
export function refuseUnrouted(log: Logger) {
  const refuse = errorHandler(log);
  return (error: FastifyError, request: FastifyRequest, reply: FastifyReply): void => {
    reply.header('connection', 'close');
    const answer = (cause: unknown) => refuse(cause, request, reply);
    request.server.limitRate(request, reply).then(() => answer(error), answer);
  };
}

/** Whether the answer was stopped because the reader has left: no fault of ours, and nobody gets an answer. */
function isAbort(error: unknown): boolean {
  return (error as { name?: unknown } | null)?.name === 'AbortError';
}

/** The table's errors for a thrown error; undefined when it is a fault of the controller. */
function knownErrors(error: unknown, request: FastifyRequest): VirtkeepError[] | undefined {
  if (isVirtkeepError(error)) return [error];
  if (error instanceof RequestErrors) return error.errors;
  const mapped = fromFastify(error as FastifyError, request);
  return mapped === undefined ? undefined : [mapped];
}

function fromFastify(error: FastifyError, request: FastifyRequest): VirtkeepError | undefined {
  const limit = request.routeOptions?.bodyLimit ?? 0;
  switch (error.code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new VirtkeepError('body_too_large', { limit_bytes: limit });
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new VirtkeepError('unsupported_media_type', { value: request.headers['content-type'] ?? '' });
    case 'FST_ERR_CTP_INVALID_JSON_BODY':
    case 'FST_ERR_CTP_EMPTY_JSON_BODY':
      return new VirtkeepError('broken_json', { reason: reasonOf(error) });
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new VirtkeepError('bad_request', { reason: 'the body does not have its announced length' });
    case 'FST_ERR_BAD_URL':
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new VirtkeepError('bad_request', { reason: 'the address cannot be read' });
    case 'FST_UNDER_PRESSURE':
      return new VirtkeepError('overloaded');
    default:
      return undefinedUnlessClient(error);
  }
}

/** Other errors for which Fastify blames the client. */
function undefinedUnlessClient(error: FastifyError): VirtkeepError | undefined {
  const status = error.statusCode ?? 500;
  if (status < 400 || status >= 500) return undefined;
  return new VirtkeepError('bad_request', { reason: reasonOf(error) });
}

/** ajv's errors as the table's, one for each field. Used as `schemaErrorFormatter`. */
export function fromValidation(errors: FastifySchemaValidationError[], part: string): RequestErrors {
  const seen = new Map<string, VirtkeepError>();
  for (const error of errors) {
    const mapped = fromAjv(error, part);
    const field = mapped.field ?? '';
    // A union reports each of its branches and then itself: the first word on a field is enough.
    if (!seen.has(field)) seen.set(field, mapped);
  }
  return new RequestErrors([...seen.values()]);
}

/** With ajv's `verbose`, errors carry the value they are about. */
type AjvError = FastifySchemaValidationError & { data?: unknown };

function fromAjv(error: AjvError, part: string): VirtkeepError {
  const place = error.instancePath.slice(1).replaceAll('/', '.');
  const inside = (name: unknown) => (place === '' ? String(name) : `${place}.${String(name)}`);
  if (error.keyword === 'additionalProperties') {
    return new VirtkeepError('unknown_field', { field: inside(error.params.additionalProperty) });
  }
  if (error.keyword === 'required') {
    return new VirtkeepError('missing_field', { field: inside(error.params.missingProperty) });
  }
  if (isUuidPattern(error)) {
    return new VirtkeepError('invalid_uuid', { field: place, value: String(error.data).slice(0, 64) });
  }
  if (place === '') {
    return part === 'body'
      ? new VirtkeepError('bad_request', { reason: 'the body must be a JSON object' })
      : new VirtkeepError('bad_request', { reason: `${part} ${error.message ?? 'cannot be used'}` });
  }
  return new VirtkeepError('invalid_field', { field: place, reason: ajvReason(error) });
}

function isUuidPattern(error: AjvError): boolean {
  return error.keyword === 'pattern' && error.params.pattern === GIVEN_UUID_PATTERN;
}

function ajvReason(error: FastifySchemaValidationError): string {
  if (error.keyword === 'enum') {
    return `must be one of: ${(error.params.allowedValues as unknown[]).map(String).join(', ')}`;
  }
  return error.message ?? 'cannot be used';
}

/** What Node's parser refuses before there is a request: broken lines, headers too large, too slow. */
export function answerClientError(error: Error & { code?: string }, socket: Socket): void {
  // without TLS there is nobody to answer: it would wait for a handshake that does not come
  const withoutTls = (socket as { secureConnecting?: boolean }).secureConnecting === true;
  if (error.code === 'ECONNRESET' || !socket.writable || withoutTls) {
    socket.destroy();
    return;
  }
  const late = error.code === 'ERR_HTTP_REQUEST_TIMEOUT';
  const reason = late ? 'it did not arrive in time' : 'it is not HTTP this server can read';
  const failure = new VirtkeepError('bad_request', { reason });
  const text = JSON.stringify(envelope([failure], newId()));
  socket.write(
    `HTTP/1.1 400 Bad Request\r\ncontent-type: ${JSON_TYPE}\r\ncontent-length: ${Buffer.byteLength(text)}\r\nconnection: close\r\n\r\n${text}`,
  );
  // whoever does not end its side must not hold it
  socket.destroySoon();
}
