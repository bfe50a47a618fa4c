/** Bytes that a node streams in chunks. */
import { VirtkeepError } from '@virtkeep/shared/errors';

export interface Part {
  /** Bytes to leave out at the beginning. */
  offset: number;
  /** 0: to the end. */
  length: number;
}

interface Chunk {
  /** Of the whole; in the first chunk. 0 with data: not known. */
  size: bigint;
  data: Uint8Array;
}

/** Until the first chunk; what comes after may take as long as its reader does. */
const FIRST_CHUNK_TIMEOUT_MS = 60_000;

/**
 * Begins to read. A reader that is slow slows the node down: nothing is read ahead but what gRPC's window holds.
 * @param signal ends it; the bytes then end with an error.
 * @throws what the node answers before the first chunk; timed_out.
 */
export async function beginBytes(
  start: (signal: AbortSignal) => AsyncIterable<Chunk>,
  signal: AbortSignal,
): Promise<{ size: number | undefined; bytes: AsyncGenerator<Uint8Array> }> {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), FIRST_CHUNK_TIMEOUT_MS);
  try {
    const chunks = start(AbortSignal.any([signal, late.signal]))[Symbol.asyncIterator]();
    const first = await chunks.next();
    const chunk = first.done ? undefined : first.value;
    const size = chunk && (chunk.size > 0n || chunk.data.length === 0) ? Number(chunk.size) : undefined;
    return { size, bytes: rest(chunk, chunks) };
  } catch (error) {
    if (late.signal.aborted)
      throw new VirtkeepError('timed_out', { operation: 'reading', seconds: FIRST_CHUNK_TIMEOUT_MS / 1000 });
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

async function* rest(first: Chunk | undefined, chunks: AsyncIterator<Chunk>): AsyncGenerator<Uint8Array> {
  try {
    if (first && first.data.length > 0) yield first.data;
    for (let next = await chunks.next(); !next.done; next = await chunks.next()) yield next.value.data;
  } finally {
    await chunks.return?.();
  }
}
