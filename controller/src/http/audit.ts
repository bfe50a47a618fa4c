/** Writes the audit records of each change once its answer is out: one, or one for each thing that it was about. */
import { isUuid } from '@virtkeep/shared/ids';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AuditEntry } from '../services/journal/audit.ts';
import type { Services } from '../services/services.ts';
import type { App } from './app.ts';

export function registerAudit(app: App, services: Services): void {
  const written = new WeakSet<FastifyRequest>();
  const write = async (request: FastifyRequest, reply: FastifyReply) => {
    if (!isAudited(request) || written.has(request)) return;
    written.add(request);
    try {
      await services.audit.during(writeRecords(services, request, reply));
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

async function writeRecords(services: Services, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const entry = { ...entryOf(request, reply), entityId: await entityOf(services, request) };
  const parts = entry.taskId === null ? [] : partsOf(request);
  if (parts.length === 0) return services.audit.record(entry);
  for (const { entityId, body } of parts) await services.audit.record({ ...entry, entityId, body });
}

function entryOf(request: FastifyRequest, reply: FastifyReply): Omit<AuditEntry, 'entityId'> {
  const principal = request.principal!;
  return {
    userId: principal.id,
    username: principal.username,
    address: request.ip,
    method: request.method,
    path: request.url,
    action: actionOf(request),
    status: reply.statusCode,
    errorKey: request.errorKey,
    taskId: request.taskId,
    requestId: request.id,
    body: bodyOf(request, reply),
    knownFields: Object.keys(bodyFields(request)),
  };
}

/** What was done with each of many things, as if it had been asked for that one alone. */
function partsOf({ routeOptions: { config }, body }: FastifyRequest): { entityId: string; body: unknown }[] {
  const { auditEach } = config;
  if (auditEach === undefined) return [];
  const fields = body as Record<string, unknown>;
  const ids = new Set(fields[auditEach] as string[]);
  return [...ids].map(entityId => ({ entityId, body: { ...fields, [auditEach]: [entityId] } }));
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

/** What the request is about: the path's id, else the VM or file its body names. A user by UUID, as everywhere in the database. */
async function entityOf(services: Services, request: FastifyRequest): Promise<string | null> {
  const { id } = (request.params ?? {}) as { id?: string | number };
  if (typeof id === 'number') return (await services.users.findByNumber(id))?.id ?? String(id);
  if (id !== undefined) return id;
  const { domain, file } = (isPlain(request.body) ? request.body : {}) as Record<string, unknown>;
  return (
    ([domain, file].find(value => typeof value === 'string' && isUuid(value)) as string | undefined) ?? null
  );
}

function isPlain(body: unknown): boolean {
  return typeof body === 'object' && body !== null && !('pipe' in body) && !Buffer.isBuffer(body);
}
