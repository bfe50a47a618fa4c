/** Prometheus metrics: the process, the answers, tasks, nodes, data pools, VMs and scheduled tasks. */
import { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { collectDefaultMetrics, Histogram, Registry } from 'prom-client';
import Type from 'typebox';
import { requirePermission } from '../../auth/principal.ts';
import type { Services } from '../../services/services.ts';
import type { App } from '../app.ts';
import { tokenOf } from '../auth.ts';
import { LOGIN_ERRORS } from '../document/error-keys.ts';
import { addGauges } from './gauges.ts';
import { metricsText } from './text.ts';

const DURATION_BUCKETS_S = [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300];
const LOOPBACK = /^(127\.\d+\.\d+\.\d+|::1|::ffff:127\.\d+\.\d+\.\d+)$/;

/** Measures every answer (so it is registered at the root, before the routes) and serves `/metrics`. */
export function registerMetrics(app: App, services: Services): void {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, prefix: 'virtkeep_controller_' });
  measureAnswers(app, registry);
  addGauges(registry, services);
  app.get(
    '/metrics',
    {
      config: { access: 'public', errors: [...LOGIN_ERRORS, 'permission_denied'] },
      schema: {
        tags: ['system'],
        summary: 'Prometheus metrics, for the loopback address or with a token',
        produces: ['text/plain'],
        response: {
          200: Type.Unsafe<Readable>({
            type: 'string',
            description: 'Prometheus text',
            examples: ['virtkeep_tasks{status="SUCCESS"} 11\n'],
          }),
        },
      },
    },
    async (request, reply) => {
      await requireAccess(services, request);
      reply.type(registry.contentType);
      return reply.send(Readable.from(metricsText(registry, services.metricSources)));
    },
  );
}

/** Labelled by route pattern, never by path: the number of series must not grow with ids. */
function measureAnswers(app: App, registry: Registry): void {
  const duration = new Histogram({
    name: 'virtkeep_http_request_duration_seconds',
    help: 'Time to answer',
    labelNames: ['method', 'route', 'status'],
    buckets: DURATION_BUCKETS_S,
    registers: [registry],
  });
  app.addHook('onResponse', async (request, reply) => {
    const route = request.routeOptions.url ?? 'unknown';
    duration.observe({ method: request.method, route, status: reply.statusCode }, reply.elapsedTime / 1000);
  });
}

/** A request that came through a proxy on this machine is not from this machine. */
async function requireAccess(services: Services, request: FastifyRequest): Promise<void> {
  const forwarded = request.headers['x-forwarded-for'] ?? request.headers.forwarded;
  if (LOOPBACK.test(request.ip) && forwarded === undefined) return;
  requirePermission(await services.tokens.principal(tokenOf(request)), 'metrics.read');
}
