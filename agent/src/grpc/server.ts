import { readFileSync } from 'node:fs';
import type { ServerInterceptor } from '@grpc/grpc-js';
import { withTimeout } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { errorServerMiddleware } from '@virtkeep/shared/grpc-status';
import { joinHostPort } from '@virtkeep/shared/host-port';
import type { Logger } from '@virtkeep/shared/log';
import { MiB } from '@virtkeep/shared/units';
import { type CompatServiceDefinition, createServer, type ServiceImplementation } from 'nice-grpc';
import type { ServerMiddleware } from 'nice-grpc-common';

import { HealthDefinition, HealthServiceImpl, HealthState } from 'nice-grpc-server-health';
import { ServerReflection, ServerReflectionService } from 'nice-grpc-server-reflection';
import type { ReloadableCredentials } from '../enroll/credentials.ts';
import type { Revocations } from '../enroll/revocations.ts';
import { auditMiddleware } from './call-audit.ts';
import { type EpochStore, epochMiddleware } from './epochs.ts';
import { peerInterceptor, permissionMiddleware, revocationMiddleware } from './peer.ts';

/** A service of the agent: its generated definition and what implements it. */
export interface Service {
  definition: CompatServiceDefinition & { fullName: string };
  // The implementation's type follows from the definition; `service` checks it where the pair is made.
  implementation: ServiceImplementation<CompatServiceDefinition>;
}

/** Pairs a definition with its implementation, checked by the compiler. */
export function service<Definition extends CompatServiceDefinition & { fullName: string }>(
  definition: Definition,
  implementation: ServiceImplementation<Definition>,
): Service {
  return { definition, implementation: implementation as ServiceImplementation<CompatServiceDefinition> };
}

export interface GrpcServer {
  /** Port that is listened on. */
  readonly port: number;
  /** What grpc.health.v1 answers for the server and for each service. */
  setHealthy(healthy: boolean): void;
  /** Lets calls in flight end for up to `graceMs`, then cuts them. Endless streams are ended with `draining`. */
  close(graceMs: number): Promise<void>;
}

/** Requests are small; an answer may be the inventory of thousands of domains. */
const MAX_REQUEST_BYTES = 4 * MiB;
const MAX_RESPONSE_BYTES = 128 * MiB;
/** Unary calls end by then, whatever the client allows; long work is an operation. */
const UNARY_TIMEOUT_MS = 120_000;
/** Those that wait for something in a guest bound themselves below this. */
const LONG_CALLS = new Map([['/virtkeep.agent.v1.GuestService/RunCommand', 660_000]]);

/** Streams that end by themselves at a stop (operations) get so long to send their last events. */
const LAST_EVENTS_MS = 200;

const CHANNEL_OPTIONS = {
  'grpc.max_receive_message_length': MAX_REQUEST_BYTES,
  'grpc.max_send_message_length': MAX_RESPONSE_BYTES,
  'grpc.max_concurrent_streams': 200,
  'grpc.keepalive_time_ms': 30_000,
  'grpc.keepalive_timeout_ms': 10_000,
  'grpc.keepalive_permit_without_calls': 1,
};

const DESCRIPTOR_SET = new URL('../../../shared/src/gen/descriptor.binpb', import.meta.url);

/**
 * Serves the services, health and reflection with mutual TLS.
 * @throws Error when the address cannot be listened on.
 */
export async function startGrpcServer(options: {
  address: string;
  /** 0: any free port. */
  port: number;
  credentials: ReloadableCredentials;
  revocations: Revocations;
  epochs: EpochStore;
  services: Service[];
  log: Logger;
}): Promise<GrpcServer> {
  const { log, services } = options;
  const stopping = new AbortController();
  const interceptors: ServerInterceptor[] = [peerInterceptor];
  const server = createServer({ ...CHANNEL_OPTIONS, interceptors } as typeof CHANNEL_OPTIONS)
    .use(errorServerMiddleware((error, method) => log.error('call failed', { method, error })))
    .use(auditMiddleware(log))
    .use(revocationMiddleware(options.revocations))
    .use(permissionMiddleware)
    .use(epochMiddleware(options.epochs))
    .use(deadlineMiddleware)
    .use(stopMiddleware(stopping.signal));
  const health = HealthState();
  const names = services.map(({ definition }) => definition.fullName);
  for (const { definition, implementation } of services) server.add(definition, implementation);
  server.add(HealthDefinition, HealthServiceImpl(health));
  server.add(ServerReflectionService, ServerReflection(readFileSync(DESCRIPTOR_SET), names));
  const setHealthy = (healthy: boolean) => {
    for (const name of ['', ...names]) health.setStatus(healthy ? 'healthy' : 'unhealthy', name);
  };
  setHealthy(false);
  const port = await server.listen(joinHostPort(options.address, options.port), options.credentials);
  return {
    port,
    setHealthy,
    async close(graceMs) {
      const end = setTimeout(() => stopping.abort(new VirtkeepError('draining')), LAST_EVENTS_MS);
      const cut = setTimeout(() => server.forceShutdown(), graceMs);
      await server.shutdown().finally(() => {
        clearTimeout(end);
        clearTimeout(cut);
      });
    },
  };
}

/** Streams see a signal that also fires when the server stops. */
function stopMiddleware(stopping: AbortSignal): ServerMiddleware {
  return async function* (call, context) {
    if (!call.responseStream) return yield* call.next(call.request, context);
    return yield* call.next(call.request, {
      ...context,
      signal: AbortSignal.any([context.signal, stopping]),
    });
  };
}

const deadlineMiddleware: ServerMiddleware = async function* (call, context) {
  if (call.requestStream || call.responseStream) return yield* call.next(call.request, context);
  const answer = (signal: AbortSignal) => call.next(call.request, { ...context, signal }).next();
  const { path } = call.method;
  const limitMs = LONG_CALLS.get(path) ?? UNARY_TIMEOUT_MS;
  const { value } = await withTimeout(path, limitMs, context.signal, answer);
  return value as never;
};
