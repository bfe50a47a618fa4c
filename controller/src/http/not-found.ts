/** 404 for unknown paths, 405 with the allowed methods for known ones. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify';

export class RouteIndex {
  readonly #methods = new Map<string, { pattern: RegExp; methods: Set<string> }>();

  /** Called for each route as it is added. */
  add(route: RouteOptions): void {
    if (route.url.includes('*')) return;
    const path = route.url.replace(/\/+$/, '');
    const text = path.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/:[A-Za-z_]+/g, '[^/]+');
    const entry = this.#methods.get(path) ?? { pattern: new RegExp(`^${text}/?$`), methods: new Set() };
    for (const method of [route.method].flat()) entry.methods.add(method);
    this.#methods.set(path, entry);
  }

  /** Methods that are served at this path; empty when nothing is. */
  methodsAt(path: string): string[] {
    const found = [...this.#methods.values()].filter(entry => entry.pattern.test(path));
    return [...new Set(found.flatMap(entry => [...entry.methods]))].sort();
  }
}

/** The not-found handler. */
export function notFound(index: RouteIndex) {
  return (request: FastifyRequest, reply: FastifyReply): never => {
    const path = request.url.split('?')[0]!;
    const allowed = index.methodsAt(path);
    if (allowed.length === 0) throw new VirtkeepError('not_found', { path: path.slice(0, 200) });
    reply.header('allow', allowed.join(', '));
    throw new VirtkeepError('method_not_allowed', {
      method: request.method,
      path,
      allowed: allowed.join(', '),
    });
  };
}
