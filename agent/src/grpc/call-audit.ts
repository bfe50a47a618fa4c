/**
 * Who called what: a line of the log for each call that reads or changes something, and for each refused call. One middleware
 * covers all methods, so a new method is audited unless it is named here as one that only lists or follows.
 */
import { isVirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { ServerError, type ServerMiddleware, Status } from 'nice-grpc-common';
import { peerIn } from './peer.ts';

/**
 * Calls that are not audited: they come a thousand times a day, and answer lists and states that hold nothing of an archive, a
 * guest or a definition. `true`: every request; a function: the requests for which it is true.
 */
export const NOT_AUDITED: Record<string, true | ((request: never) => boolean)> = {
  'OperationService/Get': ({ refuseUnknown }: { refuseUnknown: boolean }) => !refuseUnknown,
  'OperationService/List': true,
  'OperationService/Watch': true,
  'NodeService/GetInfo': true,
  'NodeService/WatchInventory': true,
  'NodeService/WatchQuestions': true,
  'NodeService/AnswerQuestion': true,
  'NodeService/FindUses': true,
  'DomainService/List': true,
  'DomainService/Get': true,
  'SnapshotService/List': true,
  'PoolService/List': true,
  'PoolService/Get': true,
  'PoolService/ListFiles': true,
  'PoolService/StreamFiles': true,
  'ImageService/List': true,
  'GuestService/ListCommands': true,
  'GuestService/GetInfo': ({ refresh }: { refresh: boolean }) => !refresh,
  'Health/Check': true,
  'Health/Watch': true,
  'ServerReflection/ServerReflectionInfo': true,
};

/** The fields of a request that the audit shows: what it is about and what is to be done. Any other field may be a secret, or large. */
const AUDIT_FIELDS = [
  'operationId',
  'id',
  'domainId',
  'newDomainId',
  'fileId',
  'file',
  'extend',
  'state',
  'member',
  'poolId',
  'diskId',
  'thinCloneId',
  'ownerId',
  'borrowerId',
  'borrowerNodeId',
  'snapshotId',
  'name',
  'user',
  'command',
  'action',
  'mode',
  'allowForeign',
  'sign',
] as const;
/** Refusals that are written for every method, also for those that are not audited otherwise. */
const REFUSED = new Set(['peer_not_allowed', 'peer_revoked', 'peer_ended']);
const MAX_TEXT_CHARACTERS = 256;

/** Writes the line when the call has ended, successful or not; so it is outside of the checks of who may call. */
export function auditMiddleware(log: Logger): ServerMiddleware {
  return async function* (call, context) {
    let outcome = 'canceled';
    try {
      const answer = yield* call.next(call.request, context);
      outcome = 'ok';
      return answer;
    } catch (error) {
      outcome = outcomeOf(error);
      throw error;
    } finally {
      const method = shortName(call.method.path);
      if (REFUSED.has(outcome) || !isNotAudited(method, call.request)) {
        const { subject, role, serial } = peerIn(context);
        log.info('call', {
          caller: cut(subject),
          role,
          serial,
          method,
          request: auditFields(call.request),
          outcome,
        });
      }
    }
  };
}

function isNotAudited(method: string, request: unknown): boolean {
  const rule = Object.hasOwn(NOT_AUDITED, method) ? NOT_AUDITED[method] : false;
  return typeof rule === 'function' ? rule(request as never) : rule === true;
}

/** `/package.Service/Method` without the package. */
function shortName(path: string): string {
  return path.slice(path.lastIndexOf('.', path.lastIndexOf('/')) + 1);
}

function outcomeOf(error: unknown): string {
  if (isVirtkeepError(error)) return error.msgKey;
  if (error instanceof ServerError) return Status[error.code]!.toLowerCase();
  return error instanceof Error && error.name === 'AbortError' ? 'canceled' : 'internal';
}

/** The fields of a request for the audit, each of a bounded length. */
function auditFields(request: unknown): Record<string, unknown> {
  const fields = request as Record<string, unknown>;
  return Object.fromEntries(
    AUDIT_FIELDS.map(name => [name, auditValue(fields[name])]).filter(([, value]) => value !== undefined),
  );
}

function auditValue(value: unknown): unknown {
  if (typeof value === 'string') return value === '' ? undefined : cut(value);
  if (typeof value === 'boolean' || typeof value === 'number') return value || undefined;
  if (typeof value !== 'object' || value === null) return undefined;
  const { poolId, filename } = value as Record<string, unknown>;
  return typeof filename === 'string' ? { poolId: auditValue(poolId), filename: cut(filename) } : undefined;
}

function cut(text: string): string {
  return text.length <= MAX_TEXT_CHARACTERS ? text : `${text.slice(0, MAX_TEXT_CHARACTERS)}…`;
}
