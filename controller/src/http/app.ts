/** The types every route file shares. */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { type ErrorKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { RouteAccess } from '@virtkeep/shared/permissions';
import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifyPluginAsync,
  FastifyRequest,
  RawServerDefault,
} from 'fastify';
import type { Principal } from '../auth/principal.ts';
import type { Services } from '../services/services.ts';
import type { IdempotentRequest } from '../services/tasks/idempotency.ts';

export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

/** A part of the application with parsers and hooks of its own. Without a name, Fastify would look for it in every module that is loaded. */
export function scope(name: string, work: (own: App) => Promise<void> | void): FastifyPluginAsync {
  return Object.assign(async (own: FastifyInstance) => work(own as App), {
    [Symbol.for('fastify.display-name')]: name,
  });
}

/** A file under routes/ exports one of these; all are named in routes/index.ts. */
export type RouteModule = (app: App, services: Services) => void;

declare module 'fastify' {
  interface FastifySchema {
    /** Of `errorKeysOf`, on its way into the document. */
    'x-error-keys'?: readonly ErrorKey[];
  }
  interface FastifyContextConfig {
    /** What its handler and the work behind it may be refused for, beside what follows from the rest of its declaration. */
    errors?: readonly ErrorKey[];
    /** Who may call it. A route without it stops the server from being built. */
    access?: RouteAccess;
    /** Only for who logged in with a password, not for integration tokens. */
    session?: boolean;
    /** The answer holds a secret: it is neither stored for idempotency nor logged. */
    secretAnswer?: boolean;
    /** Its answer is good for a short while only, and asking again does no harm: an idempotency key is ignored. */
    ignoresKey?: boolean;
    /** Its task, when it makes one, carries the idempotency key. */
    longAction?: boolean;
    /** What a body asks for in particular (a guest's command); stands in the audit log's action. */
    auditDetail?: (body: Record<string, unknown>) => string;
    /** Field of its body with ids of many things: its task stands in the audit log once for each of them. */
    auditEach?: string;
    /** Integers of its body that no number holds are kept digit by digit (`parseExact`). */
    exactIntegers?: boolean;
    /** No audit record although it is not a GET (logins write their own). */
    unaudited?: boolean;
    /** Its stream ends by itself when nobody takes it. */
    paced?: boolean;
    /** An audit record although it is a GET, by its query: a command to a guest. */
    auditedRead?: (query: Record<string, unknown>) => boolean;
  }
  interface FastifyInstance {
    /** Configured address for full URLs; null takes the request's Host header. */
    publicUrl: string | null;
    /** Counts a request. @throws too_many_requests */
    limitRate: (request: FastifyRequest, reply: FastifyReply) => Promise<void>;
  }
  interface FastifyRequest {
    /** Set for every route that is not public. */
    principal: Principal | null;
    /** Set when the body carried an idempotency key. */
    idempotent: IdempotentRequest | null;
    /** Task made or met by this request, for the audit log. */
    taskId: string | null;
    /** Key of the error answered, for the audit log. */
    errorKey: string | null;
  }
}

/** Who asks. Every route that is not public has one. @throws login_required otherwise. */
export function principalOf(request: FastifyRequest): Principal {
  if (request.principal === null) throw new VirtkeepError('login_required');
  return request.principal;
}
