/** Answers that are the bytes of a file: with Range, so that a broken download goes on where it was. */
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyReply, FastifyRequest } from 'fastify';
import Type from 'typebox';
import type { Part } from '../services/byte-stream.ts';
import type { Services } from '../services/services.ts';
import { watchRight } from './auth.ts';
import { whenClosed } from './closed.ts';
import { paced } from './paced.ts';
import { type ByteRange, parseRange } from './range.ts';
import { UNBUFFERED } from './unbuffered.ts';

/** What is read, and by which name it is saved. */
export interface ByteSource {
  name: string;
  /** Changes whenever the bytes do. */
  tag: string;
  /** Undefined when it is not known before the end. */
  sizeOf(signal: AbortSignal): Promise<number | undefined>;
  /** @throws what the node answers before the first chunk. */
  open(
    part: Part,
    signal: AbortSignal,
  ): Promise<{ size: number | undefined; bytes: AsyncIterable<Uint8Array> }>;
}

const WHOLE = { offset: 0, length: 0 };
const BINARY = 'application/octet-stream';
const Bytes = Type.Unsafe<unknown>({ type: 'string', format: 'binary' });

/** Of a route that answers bytes, for the API document. */
export const BYTE_ANSWERS = {
  200: { description: 'all of them', content: { [BINARY]: { schema: Bytes } } },
  206: { description: 'the range that was asked for', content: { [BINARY]: { schema: Bytes } } },
};

/**
 * Sends the bytes, as long as the reader takes them and still has the right to them.
 * @param find what is read; whoever it locks for is told by `whenClosed` of the reply
 */
export async function answerBytes(
  services: Services,
  request: FastifyRequest,
  reply: FastifyReply,
  find: () => Promise<ByteSource>,
): Promise<unknown> {
  const hungUp = new AbortController();
  const leave = services.downloads.enter(request.principal!.id);
  whenClosed(reply.raw, () => {
    hungUp.abort();
    leave();
  });
  const source = await find();
  const rangeText = rangeHeader(request, source.tag);
  const head = request.method === 'HEAD';
  const sizeBytes = head || rangeText !== undefined ? await source.sizeOf(hungUp.signal) : undefined;
  const range = sizeBytes === undefined ? undefined : parseRange(rangeText, sizeBytes);
  if (range === null) {
    reply.header('content-range', `bytes */${sizeBytes}`);
    throw new VirtkeepError('range_not_satisfiable', { range: rangeText ?? '', size: sizeBytes ?? 0 });
  }
  if (head) {
    describe(reply, source, sizeBytes, range);
    return reply.send();
  }
  const part = range ? { offset: range.first, length: range.last - range.first + 1 } : WHOLE;
  const { size, bytes } = await source.open(part, hungUp.signal);
  describe(reply, source, size, range);
  // an answer that ends early can be resumed by Range, with a new token or another role
  whenClosed(
    reply.raw,
    watchRight(services, request, () => reply.raw.destroy()),
  );
  const idleMs = services.config.limits.download_idle_s * 1000;
  return reply.send(Readable.from(paced(bytes, reply.raw, idleMs), { objectMode: false }));
}

/** Length and ranges, where the size is known; else the answer is chunked and cannot be resumed. */
function describe(
  reply: FastifyReply,
  { name, tag }: ByteSource,
  size: number | undefined,
  range: ByteRange | undefined,
): void {
  reply.headers(UNBUFFERED).type(BINARY).header('content-disposition', disposition(name));
  reply.header('etag', tag);
  reply.header('accept-ranges', size === undefined ? 'none' : 'bytes');
  if (size === undefined) return;
  reply.header('content-length', range ? range.last - range.first + 1 : size);
  if (range) reply.code(206).header('content-range', `bytes ${range.first}-${range.last}/${size}`);
}

/** The requested range, unless its bytes have changed since (If-Range). */
function rangeHeader(request: FastifyRequest, tag: string): string | undefined {
  const condition = request.headers['if-range'];
  return condition === undefined || condition === tag ? request.headers.range : undefined;
}

/** RFC 6266: the full name for clients that can read it, and a plain ASCII name for those that cannot. */
function disposition(path: string): string {
  const name = basename(path);
  const plain = name.replace(/[^\w.-]/g, '_');
  const encoded = encodeURIComponent(name).replace(/['()*]/g, c => `%${c.charCodeAt(0).toString(16)}`);
  return `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`;
}
