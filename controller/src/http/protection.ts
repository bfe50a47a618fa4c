/** Security headers, rate limit, and refusal under pressure. */
import helmet from '@fastify/helmet';
import rateLimit from '@fastify/rate-limit';
import underPressure from '@fastify/under-pressure';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { addressGroup } from '../auth/address-group.ts';
import type { ControllerConfig } from '../config.ts';
import type { App } from './app.ts';
import { contentPolicy } from './content-policy.ts';

const RETRY_AFTER_S = 5;

export async function registerProtection(app: App, config: ControllerConfig): Promise<void> {
  await app.register(helmet, {
    // A browser that has seen HSTS lets nobody past a self-signed certificate, so only with a real one.
    hsts: config.tls.mode === 'files',
    // another one for each kind of answer
    contentSecurityPolicy: false,
    frameguard: { action: 'deny' },
  });
  app.addHook('onRequest', async (request, reply) => {
    reply.header('content-security-policy', contentPolicy(request.url));
  });
  await app.register(rateLimit, {
    global: false,
    max: config.limits.requests_per_minute,
    timeWindow: 60_000,
    // A socket that is gone already has no address.
    keyGenerator: request => addressGroup(request.ip ?? ''),
    errorResponseBuilder: (_request, context) =>
      new VirtkeepError('too_many_requests', { seconds: Math.ceil(context.ttl / 1000) }),
  });
  countRequests(app);
  await app.register(underPressure, {
    maxEventLoopDelay: config.limits.event_loop_delay_ms,
    retryAfter: RETRY_AFTER_S,
    pressureHandler: (request, _reply, _type, value) => {
      // After a stall the sampler has no sample and says Infinity, although the stall is over (measured).
      if (!Number.isFinite(value) || request.url.startsWith('/healthz')) return;
      throw new VirtkeepError('overloaded');
    },
  });
}

/** Counts each request before anything else is done for it, whether it is let through, refused, or for a path that is none. */
function countRequests(app: App): void {
  const count = app.createRateLimit();
  app.decorate('limitRate', async (request: FastifyRequest, reply: FastifyReply) => {
    const counted = await count(request);
    if (counted.isAllowed) return;
    reply.header('x-ratelimit-limit', counted.max);
    reply.header('x-ratelimit-remaining', counted.remaining);
    reply.header('x-ratelimit-reset', counted.ttlInSeconds);
    if (counted.isExceeded) throw new VirtkeepError('too_many_requests', { seconds: counted.ttlInSeconds });
  });
  app.addHook('onRequest', async (request, reply) => {
    if (request.routeOptions.config.rateLimit !== false) await app.limitRate(request, reply);
  });
}
