/** Hooks that carry the idempotency key of a body through a request; see services/tasks/idempotency.ts for the rules. */
import { parseExact } from '@virtkeep/shared/exact-json';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Services } from '../services/services.ts';
import type { App } from './app.ts';
import { pathWithIds } from './given-ids.ts';
import { givenKey, keepsKey } from './keeps-key.ts';
import { type BodySchema, isOpen } from './route-rules.ts';

export function registerIdempotency(app: App, services: Services): void {
  app.addHook('preHandler', (request, reply) => takeKey(services, request, reply));
  app.addHook('onSend', (request, reply, payload) => settleKey(services, request, reply, payload));
}

async function takeKey(services: Services, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const body = request.body as Record<string, unknown> | null | undefined;
  if (request.principal === null || body?.idempotency_key === undefined) return;
  const { idempotency_key: _given, ...rest } = body;
  request.body = rest;
  const key = givenKey(body);
  if (key === undefined || !keepsKey(request.routeOptions.config)) return;
  request.idempotent = await services.idempotency.begin({
    userId: request.principal.id,
    key,
    method: request.method,
    path: pathWithIds(request.url.split('?')[0]!),
    body: whatCounts(rest, request),
    longAction: request.routeOptions.config.longAction === true,
  });
  const { answer } = request.idempotent;
  if (answer !== null) await reply.code(answer.status).send(answer.body);
}

/** A request is the same one whatever stands in the fields that its route ignores. */
function whatCounts(body: Record<string, unknown>, { routeOptions: { schema } }: FastifyRequest): object {
  const bodySchema = (schema?.body ?? {}) as BodySchema;
  if (!isOpen(bodySchema)) return body;
  const { properties = {} } = bodySchema;
  return Object.fromEntries(Object.entries(body).filter(([name]) => Object.hasOwn(properties, name)));
}

async function settleKey(
  services: Services,
  request: FastifyRequest,
  reply: FastifyReply,
  payload: unknown,
): Promise<void> {
  const keyed = request.idempotent;
  if (keyed === null) return;
  request.idempotent = null;
  if (reply.statusCode >= 400) return services.idempotency.abandon(keyed, request.errorKey);
  const answer: unknown = typeof payload === 'string' && payload !== '' ? parseExact(payload) : null;
  const store = request.routeOptions.config.secretAnswer !== true;
  await services.idempotency.complete(keyed, reply.statusCode, answer, store);
}
