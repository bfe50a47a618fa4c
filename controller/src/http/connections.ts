/** How long and how many connections may be held, by whom the controller knows nothing of yet. */
import type { Server, Socket } from 'node:net';
import { KeyedCount } from '@virtkeep/shared/keyed-count';
import { KiB } from '@virtkeep/shared/units';
import { addressGroup } from '../auth/address-group.ts';
import type { ControllerConfig } from '../config.ts';
import type { App } from './app.ts';
import { isUpload } from './body-stream.ts';
import { whenClosed } from './closed.ts';
import { answerClientError } from './errors.ts';

const LONGEST_CHECK_MS = 30_000;
/** Slower than this nobody has to be served. */
const SLOWEST_BYTES_PER_S = 64 * KiB;

/** Longer than proxies keep a connection that nobody uses: they end it, and never find one that is just ending. */
const KEEP_ALIVE_MS = 75_000;

/** Options of Node's server: a head that does not arrive in time ends, and its connection with it. For bodies see `limitBodyTimes`. */
export function timeLimits({ limits }: ControllerConfig) {
  const headersTimeout = limits.request_timeout_s * 1000;
  return {
    requestTimeout: 0,
    headersTimeout,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(LONGEST_CHECK_MS, headersTimeout / 2),
  };
}

/** A body must arrive in as much time again, but for uploads, which look after themselves: Node knows one limit for all. */
export function limitBodyTimes(server: Server, { limits }: ControllerConfig): void {
  server.on('request', (request, response) => {
    if (isUpload(request)) return;
    const timer = setTimeout(() => {
      if (!request.complete) endLate(request.socket, response.headersSent);
    }, limits.request_timeout_s * 1000);
    timer.unref();
    request.once('close', () => clearTimeout(timer));
  });
}

function endLate(socket: Socket, isAnswered: boolean): void {
  if (isAnswered) socket.destroy();
  else answerClientError(Object.assign(new Error('late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), socket);
}

/** Bounds the connections of all and of each address. Behind trusted proxies only of all: those hold everybody's. */
export function limitConnections(server: Server, config: ControllerConfig): void {
  server.maxConnections = config.limits.connections;
  if (config.trusted_proxies.length > 0) return;
  const open = new KeyedCount();
  server.on('connection', (socket: Socket) => {
    const place = addressGroup(socket.remoteAddress ?? '');
    socket.once('close', open.add(place));
    if (open.of(place) > config.limits.connections_per_address) socket.destroy();
  });
}

/**
 * @returns ends the connections of a server that is closed: at once those on which nothing is asked, as browsers open them in advance, and the
 *   others after their answer
 */
export function connectionEnder(server: Server): () => void {
  const open = new Map<string, Socket>();
  const asked = new KeyedCount();
  let isEnding = false;
  const endUnused = (key: string) => {
    if (isEnding && asked.of(key) === 0) open.get(key)?.destroy();
  };
  server.on('connection', (socket: Socket) => {
    const key = peerOf(socket);
    open.set(key, socket);
    socket.once('close', () => open.delete(key));
  });
  server.on('request', (request, response) => {
    const key = peerOf(request.socket);
    const answered = asked.add(key);
    whenClosed(response, () => {
      answered();
      endUnused(key);
    });
  });
  return () => {
    isEnding = true;
    for (const key of [...open.keys()]) endUnused(key);
  };
}

/** The same for a connection and what is decrypted of it. */
const peerOf = ({ remoteAddress, remotePort }: Socket) => `${remoteAddress} ${remotePort}`;

/** An answer that goes out before its request has arrived ends the connection, or the sender would hold it by sending slowly. */
export function endUnreadRequests(app: App): void {
  app.addHook('onSend', async (request, reply, payload) => {
    if (request.raw.complete === false) reply.header('connection', 'close');
    return payload;
  });
}

/** An answer that nobody takes ends the connection. Downloads look after themselves, and events, which take the reply over. */
export function endUntakenAnswers(app: App, { limits }: ControllerConfig): void {
  app.addHook('onSend', async (request, reply, payload) => {
    const isText = typeof payload === 'string';
    if (!isText && request.routeOptions.config.paced === true) return payload;
    const lengthBytes = isText ? payload.length : Number(reply.getHeader('content-length') ?? 0);
    const timeMs = (limits.request_timeout_s + lengthBytes / SLOWEST_BYTES_PER_S) * 1000;
    const timer = setTimeout(() => reply.raw.destroy(), timeMs);
    timer.unref();
    whenClosed(reply.raw, () => clearTimeout(timer));
    return payload;
  });
}
