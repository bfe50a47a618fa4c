/** Writes the audit record of each change once its answer is out. */
import { isUuid } from '@virtkeep/shared/ids';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Services } from '../services/services.ts';
import type { App } from './app.ts';

export function registerAudit(app: App, services: Services): void {
  const written = new WeakSet<FastifyRequest>();
  const write = async (request: FastifyRequest, reply: FastifyReply) => {
    if (!isAudited(request) || written.has(request)) return;
    written.add(request);
    try {
      await writeRecord(services, request, reply);
    } catch (error) {
      services.log.error('audit record not written', { error, request_id: request.id });
    }
  };
  app.addHook('onResponse', write);
  // who has left is sent nothing, and there is no response then: what was asked is written down all the same
  app.addHook('onSend', async (request, reply, payload) => {
    if (reply.raw.destroyed) await write(request, reply);
    else reply.raw.once('close', () => void write(request, reply));
    return payload;
  });
}

/**
 * Changes by somebody known, and what asks a guest; what was refused for want of a login is no change and would fill the log.
 */
function isAudited({ method, principal, query, routeOptions: { config } }: FastifyRequest): boolean {
  if (principal === null) return false;
  if (method === 'GET' || method === 'HEAD')
    return config.auditedRead?.(query as Record<string, unknown>) ?? false;
  return method !== 'OPTIONS' && config.unaudited !== true;
}

function writeRecord(services: Services, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const principal = request.principal!;
  return services.audit.record({
    userId: principal.id,
    username: principal.username,
    address: request.ip,
    method: request.method,
    path: request.url,
    action: actionOf(request),
    entityId: entityOf(request),
    status: reply.statusCode,
    errorKey: request.errorKey,
    taskId: request.taskId,
    requestId: request.id,
    body: bodyOf(request, reply),
    knownFields: Object.keys(bodyFields(request)),
  });
}

function actionOf({ method, routeOptions: { url = '', config }, body }: FastifyRequest): string {
  const detail = isPlain(body) ? config.auditDetail?.(body as Record<string, unknown>) : undefined;
  return detail ? `${method} ${url} ${detail}` : `${method} ${url}`;
}

/** Of a request that was refused as malformed only the names: a secret may stand where none is expected. */
function bodyOf({ body }: FastifyRequest, { statusCode }: FastifyReply): unknown {
  if (!isPlain(body)) return null;
  return statusCode === 400 && !Array.isArray(body) ? { refused_fields: Object.keys(body as object) } : body;
}

/** Fields of the body that the route knows. */
function bodyFields({ routeOptions: { schema } }: FastifyRequest): object {
  return (schema?.body as { properties?: object } | undefined)?.properties ?? {};
}

/** What the request is about: the path's id, else the VM or file its body names. */
function entityOf(request: FastifyRequest): string | null {
  const { id } = (request.params ?? {}) as { id?: string | number };
  if (id !== undefined) return String(id);
  const { domain, file } = (isPlain(request.body) ? request.body : {}) as Record<string, unknown>;
  return (
    ([domain, file].find(value => typeof value === 'string' && isUuid(value)) as string | undefined) ?? null
  );
}

function isPlain(body: unknown): boolean {
  return typeof body === 'object' && body !== null && !('pipe' in body) && !Buffer.isBuffer(body);
}
