/**
 * Bytes for a reader who must go on taking them. What is read is locked meanwhile, so a reader who stops, or takes a byte
 * now and then, is cut off: of its own time it has so long for each MiB. The time that the source takes is not its own.
 */
import type { ServerResponse } from 'node:http';
import { MiB } from '@virtkeep/shared/units';
import { whenClosed } from './closed.ts';

/** @param response is destroyed when its reader is too slow, also with the last bytes */
export async function* paced(
  bytes: AsyncIterable<Uint8Array>,
  response: ServerResponse,
  idleMs: number,
): AsyncGenerator<Uint8Array> {
  let waitedMs = 0;
  let takenBytes = 0;
  const allow = () => setTimeout(() => response.destroy(), Math.max(0, idleMs - waitedMs));
  for await (const chunk of bytes) {
    const since = performance.now();
    const timer = allow();
    try {
      yield chunk;
    } finally {
      clearTimeout(timer);
    }
    waitedMs += performance.now() - since;
    takenBytes += chunk.length;
    if (takenBytes < MiB) continue;
    takenBytes = 0;
    waitedMs = 0;
  }
  const timer = allow();
  whenClosed(response, () => clearTimeout(timer));
}
