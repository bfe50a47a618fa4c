/**
 * The HTTP server. A request passes: rate limit, also where it is refused or nothing is served → draining → login and permission → body → validation → idempotency key
 * → handler → audit. Everything that fails on the way leaves through errors.ts.
 */

import type { IncomingMessage } from 'node:http';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import Fastify from 'fastify';
import type { Services } from '../services/services.ts';
import { MIN_TLS } from '../tls.ts';
import { type App, type RouteModule, scope } from './app.ts';
import { registerAudit } from './audit.ts';
import { authorize } from './auth.ts';
import {
  endUnreadRequests,
  endUntakenAnswers,
  limitBodyTimes,
  limitConnections,
  timeLimits,
} from './connections.ts';
import { ASK_ANOTHER, answerClientError, errorHandler, fromValidation, refuseUnrouted } from './errors.ts';
import { readIds } from './given-ids.ts';
import { registerIdempotency } from './idempotent.ts';
import { registerMetrics } from './metrics/index.ts';
import { notFound, RouteIndex } from './not-found.ts';
import { registerOpenApi } from './openapi.ts';
import { knownUrl } from './other-names.ts';
import { registerParsers } from './parsers.ts';
import { registerProtection } from './protection.ts';
import { dropUnknown, readIntegers } from './query.ts';
import { applyRouteRules } from './route-rules.ts';
import { registerSchemas } from './schemas/index.ts';
import { compiledWhenUsed } from './validators.ts';

export interface ServerDependencies {
  services: Services;
  routes: readonly RouteModule[];
  /** PEM texts; plain HTTP when absent. */
  tls?: { key: string; cert: string } | undefined;
  /** Addresses of other controllers, which stand for clients. */
  forwarders?: readonly string[];
}

const MAX_PARAM_LENGTH = 500;

/** Builds the server, ready to listen. @throws when a route declares no access. */
export async function buildServer(dependencies: ServerDependencies): Promise<App> {
  const { services, routes } = dependencies;
  const app = createApp(dependencies);
  const index = new RouteIndex();
  decorate(app, services);
  app.addHook('onRoute', route => {
    applyRouteRules(route);
    index.add(route);
  });
  app.setErrorHandler(errorHandler(services.log));
  const refuseUnknown = notFound(index);
  app.setNotFoundHandler(refuseUnknown);
  registerParsers(app);
  registerSchemas(app);
  await registerOpenApi(app);
  await registerProtection(app, services.config);
  endUnreadRequests(app);
  endUntakenAnswers(app, services.config);
  registerGates(app, services, refuseUnknown);
  registerIdempotency(app, services);
  registerAudit(app, services);
  registerMetrics(app, services);
  for (const routeModule of routes) {
    await app.register(scope('routes', async own => routeModule(own, services)));
  }
  await app.ready();
  limitConnections(app.server, services.config);
  limitBodyTimes(app.server, services.config);
  return app;
}

function createApp({ services, tls, forwarders = [] }: ServerDependencies): App {
  const { config } = services;
  const trusted = [...config.trusted_proxies, ...forwarders];
  const times = timeLimits(config);
  const options = {
    logger: false,
    ...(config.api.other_names
      ? { rewriteUrl: (request: IncomingMessage) => knownUrl(request.url ?? '/') }
      : {}),
    genReqId: newId,
    requestIdHeader: false as const,
    bodyLimit: config.limits.body_bytes,
    keepAliveTimeout: times.keepAliveTimeout,
    requestTimeout: times.requestTimeout,
    trustProxy: trusted.length > 0 ? trusted : false,
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: MAX_PARAM_LENGTH },
    ajv: {
      customOptions: {
        removeAdditional: false,
        coerceTypes: false as const,
        useDefaults: true,
        allErrors: true,
        verbose: true,
        strict: true,
        allowUnionTypes: true,
      },
    },
    schemaController: { compilersFactory: { buildValidator: compiledWhenUsed } },
    schemaErrorFormatter: fromValidation,
    clientErrorHandler: answerClientError,
    frameworkErrors: refuseUnrouted(services.log),
    return503OnClosing: false,
    forceCloseConnections: 'idle' as const,
  };
  const app =
    tls === undefined
      ? Fastify({ ...options, http: times })
      : Fastify({
          ...options,
          https: { ...tls, ...times, handshakeTimeout: times.headersTimeout, minVersion: MIN_TLS },
        });
  return app as unknown as App;
}

function decorate(app: App, services: Services): void {
  app.decorate('publicUrl', services.config.api.public_url ?? null);
  app.decorateRequest('principal', null);
  app.decorateRequest('idempotent', null);
  app.decorateRequest('taskId', null);
  app.decorateRequest('errorKey', null);
  // Answers leave as they are: tests hold them against the document, nothing is silently cut out of them.
  app.setSerializerCompiler(() => data => JSON.stringify(data));
}

function registerGates(app: App, services: Services, refuseUnknown: ReturnType<typeof notFound>): void {
  app.addHook('onRequest', async (request, reply) => {
    services.acting.mustAct();
    reply.header('x-request-id', request.id);
    reply.header('cache-control', 'no-store');
    if (services.draining.aborted) {
      reply.header('connection', 'close');
      if (request.method !== 'GET' && request.method !== 'HEAD') {
        reply.header(ASK_ANOTHER, '1');
        throw new VirtkeepError('draining');
      }
    }
    // before its body is read
    if (request.is404) refuseUnknown(request, reply);
    await authorize(services, request);
  });
  app.addHook('onSend', async () => {
    services.acting.mustAct();
  });
  app.addHook('preValidation', async request => {
    const { schema } = request.routeOptions;
    const query = request.query as Record<string, unknown>;
    dropUnknown(query, schema?.querystring);
    readIntegers(query, schema?.querystring);
    readIntegers(request.params as Record<string, unknown>, schema?.params);
    readIds(request.params, schema?.params);
    readIds(request.query, schema?.querystring);
    readIds(request.body, schema?.body);
  });
}
