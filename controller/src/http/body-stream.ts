/** The body of a request as it comes in, for routes that take more than fits into memory. */
import type { IncomingMessage } from 'node:http';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';

/** Routes whose body may take as long as it comes in at all; all others must have arrived within `limits.request_timeout_s`. */
const UPLOAD = /^\/api\/(?:iso\/(?:[^/?]+\/)?upload|library\/upload(?:\/[^/?]+)?)\/?(?:\?|$)/;

export const isUpload = ({ method, url = '' }: Pick<IncomingMessage, 'method' | 'url'>): boolean =>
  (method === 'POST' || method === 'PATCH') && UPLOAD.test(url);

/**
 * What arrives, while its sender goes on: of its own time it has so long for each MiB.
 * @throws bad_request when it breaks off, or its sender is too slow
 */
export async function* bodyOf(request: IncomingMessage, idleMs: number): AsyncGenerator<Buffer> {
  let [waitedMs, taken] = [0, 0];
  const body = request[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  for (;;) {
    const since = performance.now();
    const timer = setTimeout(() => request.destroy(), Math.max(0, idleMs - waitedMs));
    const next = await body
      .next()
      .catch(() => {
        throw new VirtkeepError('bad_request', { reason: 'the body broke off' });
      })
      .finally(() => clearTimeout(timer));
    if (next.done) return;
    waitedMs += performance.now() - since;
    taken += next.value.length;
    if (taken >= MiB) [waitedMs, taken] = [0, 0];
    yield next.value;
  }
}
