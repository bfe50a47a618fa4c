/** The bytes of something of known size, in the chunks that the agents stream. */
import { throwIfAborted } from './abort.ts';
import { VirtkeepError } from './errors.ts';
import { MiB } from './units.ts';

/** Something with a size that can be read at any place; fewer bytes than asked for are read where it ends. */
export interface ByteSource {
  path: string;
  sizeBytes: number;
  read(offset: number, lengthBytes: number): Promise<Buffer>;
}

/**
 * Yields a part of it; the next chunk is read only when it is wanted. The first one has the whole size, also when it has no data.
 * @param part length 0: to the end
 * @throws VirtkeepError invalid_field (offset beyond the end), io_failed, canceled; what `read` throws
 */
export async function* chunksOf(
  { path, sizeBytes, read }: ByteSource,
  { offset, length }: { offset: number; length: number },
  signal: AbortSignal,
): AsyncGenerator<{ size: bigint; data: Buffer }> {
  if (offset > sizeBytes)
    throw new VirtkeepError('invalid_field', { field: 'offset', reason: `is beyond the ${sizeBytes} bytes` });
  const end = length === 0 ? sizeBytes : Math.min(sizeBytes, offset + length);
  for (let at = offset, first = true; at < end || first; first = false) {
    throwIfAborted(signal);
    const data = at < end ? await read(at, Math.min(MiB, end - at)) : Buffer.alloc(0);
    if (data.length === 0 && at < end)
      throw new VirtkeepError('io_failed', { operation: 'reading', path, reason: 'it became shorter' });
    at += data.length;
    yield { size: first ? BigInt(sizeBytes) : 0n, data };
  }
}
