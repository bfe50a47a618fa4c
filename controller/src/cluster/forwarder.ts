/**
 * Hands requests to the controller that acts, as they come, and its answers back. While none acts they wait. A request that may have
 * been taken by one that is gone is sent again only when that does no harm; of any other the client is told.
 */
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { type Agent, request as httpsRequest } from 'node:https';
import { pipeline } from 'node:stream';
import { compile } from '@fastify/proxy-addr';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import { KiB } from '@virtkeep/shared/units';
import type { ControllerConfig } from '../config.ts';
import { envelope } from '../http/errors.ts';
import { ASK_ANOTHER } from '../http/server.ts';

/** A controller that takes over needs its time; after this the client is told. */
const WAIT_MS = 60_000;
const AGAIN_MS = 200;
const RETRY_AFTER_S = '2';
/** Of a body that is kept, so that it can be sent to another one. */
const KEPT_BYTES = 64 * KiB;
/** Of one connection (RFC 9110, 7.6.1); `expect` was answered already. */
const OF_CONNECTION = [
  'connection',
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
  'expect',
];

/** Where the controller that acts takes requests. */
export interface ActingPlace {
  /** host:port */
  address: string;
  /** Another one for each time that one takes over. */
  epoch: number;
}

export interface ForwarderOptions {
  config: ControllerConfig;
  log: Logger;
  /** With the certificates of a controller. */
  agent: () => Promise<Agent>;
}

interface Pending {
  epoch: number;
  end: (reason: Error) => void;
}

/** answered: by the one that acts, if only in part; again: nothing was done, or nothing that asking twice would harm; unknown: perhaps something was. */
type Outcome = 'answered' | 'again' | 'unknown';

interface Asked {
  request: IncomingMessage;
  response: ServerResponse;
  /** Undefined: it is too long to be kept, and can be sent once. */
  body: Buffer | undefined;
}

export class Forwarder {
  readonly #options: ForwarderOptions;
  /** As Fastify judges them. */
  readonly #isTrusted: (address: string, hop: number) => boolean;
  readonly #pending = new Set<Pending>();
  readonly #waiting = new Set<() => void>();
  /** The server that it belongs to takes no further ones. */
  closesConnections = false;
  #place: ActingPlace | undefined;
  #reason = 'none has been seen yet';

  constructor(options: ForwarderOptions) {
    this.#options = options;
    this.#isTrusted = compile(options.config.trusted_proxies);
  }

  /** Requests go there from now on; those that one before has are ended. @param reason why there is none */
  point(place: ActingPlace | undefined, reason = ''): void {
    this.#reason = reason;
    if (place?.epoch === this.#place?.epoch && place?.address === this.#place?.address) return;
    this.#place = place;
    if (!place) return;
    for (const pending of [...this.#pending])
      if (pending.epoch !== place.epoch) pending.end(new Error('another controller acts now'));
    for (const go of [...this.#waiting]) go();
  }

  /** A listener of `request`. */
  readonly handle = (request: IncomingMessage, response: ServerResponse): void => {
    this.#forward(request, response).catch((error: unknown) => {
      this.#options.log.warn('a request was not forwarded', { url: pathOf(request.url), error });
      refuse(
        response,
        error instanceof VirtkeepError ? error : new VirtkeepError('internal', { request_id: '' }),
      );
    });
  };

  async #forward(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const untilMs = performance.now() + WAIT_MS;
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const asked: Asked = { request, response, body: await keptBody(request) };
    for (;;) {
      const place = await this.#whenPlaced(untilMs, gone.signal);
      if (!place) return;
      const outcome = await this.#attempt(place, asked);
      if (outcome === 'answered' || gone.signal.aborted) return;
      if (outcome === 'unknown') throw new VirtkeepError('controller_changed');
      await new Promise(resolve => setTimeout(resolve, AGAIN_MS));
    }
  }

  /** @returns undefined when the client has gone @throws VirtkeepError no_controller when there is none in time */
  async #whenPlaced(untilMs: number, gone: AbortSignal): Promise<ActingPlace | undefined> {
    while (!gone.aborted) {
      if (performance.now() >= untilMs) throw new VirtkeepError('no_controller', { reason: this.#reason });
      if (this.#place) return this.#place;
      await new Promise<void>(resolve => {
        const go = () => {
          clearTimeout(timer);
          this.#waiting.delete(go);
          gone.removeEventListener('abort', go);
          resolve();
        };
        const timer = setTimeout(go, Math.max(1, untilMs - performance.now()));
        this.#waiting.add(go);
        gone.addEventListener('abort', go, { once: true });
      });
    }
    return undefined;
  }

  async #attempt(place: ActingPlace, { request, response, body }: Asked): Promise<Outcome> {
    const upstream = await this.#open(place, request);
    const { promise, resolve } = Promise.withResolvers<Outcome>();
    const mayAskAgain = body !== undefined && isRead(request.method);
    let isSent = false;
    const end = this.#endsWith(place, upstream);
    const leave = () => upstream.destroy();
    response.once('close', leave);
    upstream.once('response', answer => {
      if (body !== undefined && answer.headers[ASK_ANOTHER] !== undefined) {
        response.off('close', leave);
        answer.resume();
        return resolve('again');
      }
      response.writeHead(answer.statusCode!, {
        ...withoutConnection(answer.headers),
        ...(this.closesConnections && { connection: 'close' }),
      });
      response.flushHeaders();
      // one that breaks off must not look whole: its reader is cut off, too
      pipeline(answer, response, () => resolve('answered'));
    });
    upstream.once('error', () => {
      response.off('close', leave);
      if (response.headersSent) return;
      resolve(!isSent || mayAskAgain ? 'again' : 'unknown');
    });
    upstream.once('socket', socket => {
      const send = () => {
        isSent = true;
        if (body) upstream.end(body);
        else request.pipe(upstream);
      };
      if (upstream.reusedSocket) send();
      else socket.once('secureConnect', send);
    });
    return promise.finally(end);
  }

  /** It is cut off when another one acts. @returns when that is over */
  #endsWith({ epoch }: ActingPlace, upstream: ClientRequest): () => void {
    const pending: Pending = { epoch, end: reason => upstream.destroy(reason) };
    this.#pending.add(pending);
    return () => this.#pending.delete(pending);
  }

  async #open({ address }: ActingPlace, request: IncomingMessage): Promise<ClientRequest> {
    const at = address.lastIndexOf(':');
    return httpsRequest({
      agent: await this.#options.agent(),
      host: address.slice(0, at).replace(/^\[(.*)\]$/, '$1'),
      port: Number(address.slice(at + 1)),
      method: request.method,
      path: request.url,
      headers: this.#headersOf(request),
    });
  }

  /** What a client says of others that it stands for counts only when it is a proxy that is trusted. */
  #headersOf(request: IncomingMessage): IncomingHttpHeaders {
    const headers = withoutConnection(request.headers);
    const from = request.socket.remoteAddress ?? '';
    if (!this.#isTrusted(from, 0))
      for (const name of Object.keys(headers)) if (name.startsWith('x-forwarded-')) delete headers[name];
    const before = headers['x-forwarded-for'];
    headers['x-forwarded-for'] = before === undefined ? from : `${before}, ${from}`;
    headers['x-forwarded-proto'] ??= this.#options.config.tls.mode === 'off' ? 'http' : 'https';
    return headers;
  }
}

const isRead = (method: string | undefined) => method === 'GET' || method === 'HEAD';

async function keptBody(request: IncomingMessage): Promise<Buffer | undefined> {
  const { 'transfer-encoding': encoding, 'content-length': length } = request.headers;
  if (encoding !== undefined || Number(length ?? 0) > KEPT_BYTES) return undefined;
  return Buffer.concat(await request.toArray());
}

/** Also without what the connection's own header names. */
function withoutConnection(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const named = (headers.connection ?? '').split(',').map(name => name.trim().toLowerCase());
  const left = { ...headers };
  for (const name of [...OF_CONNECTION, ...named]) delete left[name];
  return left;
}

/** Queries may hold what nobody else may read. */
const pathOf = (url = '/') => url.split('?')[0];

function refuse(response: ServerResponse, error: VirtkeepError): void {
  if (response.headersSent || response.destroyed) return void response.destroy();
  const requestId = newId();
  response
    .writeHead(error.status, {
      'content-type': 'application/json; charset=utf-8',
      'cache-control': 'no-store',
      'retry-after': RETRY_AFTER_S,
      'x-request-id': requestId,
      // its body was perhaps not read
      connection: 'close',
    })
    .end(JSON.stringify(envelope([error], requestId)));
}
