/** Whether an idempotency key means something on a route. Pure. */
import type { FastifyContextConfig } from 'fastify';

/** Not before a login, since a key is somebody's, and not where an answer of before is good no longer. */
export function keepsKey(config: FastifyContextConfig | undefined): boolean {
  return config?.access !== 'public' && config?.ignoresKey !== true;
}
