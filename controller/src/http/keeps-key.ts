/** Whether an idempotency key means something on a route, and which one a body has. Pure. */
import { isUuid } from '@virtkeep/shared/ids';
import type { FastifyContextConfig } from 'fastify';

/** Not before a login, since a key is somebody's, and not where an answer of before is good no longer. */
export function keepsKey(config: FastifyContextConfig | undefined): boolean {
  return config?.access !== 'public' && config?.ignoresKey !== true;
}

/** The key of a body as it counts, in lower case; undefined where there is none, or what is none. */
export function givenKey(body: unknown): string | undefined {
  const key = String(
    (body as { idempotency_key?: unknown } | null | undefined)?.idempotency_key,
  ).toLowerCase();
  return isUuid(key) ? key : undefined;
}
