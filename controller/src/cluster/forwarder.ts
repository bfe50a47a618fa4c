/**
 * Hands requests to the controller that acts, as they come, and its answers back. While none acts they wait. A request that may have
 * been taken by one that is gone is sent again only when that does no harm; of any other the client is told.
 */
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { pipeline } from 'node:stream';
import { compile } from '@fastify/proxy-addr';
import { sleep } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { splitHostPort } from '@virtkeep/shared/host-port';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import { KiB } from '@virtkeep/shared/units';
import type { ControllerConfig } from '../config.ts';
import { ASK_ANOTHER, envelope } from '../http/errors.ts';
import { givenKey } from '../http/keeps-key.ts';
import type { ForwardingAgents } from './peer-tls.ts';

/** A controller that takes over needs its time; after this the client is told. */
const WAIT_MS = 60_000;
const AGAIN_MS = 200;
/**
 * So often a request is sent over new connections: one that ends whoever takes it must not end all controllers, one after the other. Over one
 * that was kept open it may not have arrived at all.
 */
const MOST_SENT = 2;
const RETRY_AFTER_S = '2';
/** Of a body that is kept, so that it can be sent to another one. */
const KEPT_BYTES = 64 * KiB;
/** Of one connection (RFC 9110, 7.6.1); `expect` was answered already. */
const OF_CONNECTION = ['connection', 'keep-alive', 'proxy-connection', 'te', 'upgrade', 'expect'];
/** How long a body is says this controller itself: whoever said it twice, or took it away, could hide a request of his in another one. */
const FRAMING = ['transfer-encoding', 'content-length'];
/** What the connection's own header may not take away. */
const KEPT = new Set([...FRAMING, 'host', 'authorization', 'cookie']);
/** While an answer is waited for, it is looked so often whether the one that acts is still reached. */
const LOOK_MS = 5000;
/** So long it may take to answer that. */
const LIVES_MS = 10_000;

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
  agents: () => Promise<ForwardingAgents>;
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
  /** How often it was sent over a new connection. */
  sent: number;
}

export class Forwarder {
  readonly #options: ForwarderOptions;
  /** As Fastify judges them. */
  readonly #isTrusted: (address: string, hop: number) => boolean;
  readonly #pending = new Set<Pending>();
  readonly #waiting = new Set<() => void>();
  /** Without event streams, which have no end. */
  readonly #unanswered = new Set<ServerResponse>();
  readonly #drained = Promise.withResolvers<void>();
  #isDraining = false;
  /** The server that it belongs to takes no further ones. */
  closesConnections = false;
  #place: ActingPlace | undefined;
  #reason = 'none has been seen yet';
  #living: Promise<void> | undefined;

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

  /** Waits until all that has come is answered. What waits for a controller to act is refused, and so is from now on what nobody takes. */
  drain(): Promise<void> {
    this.closesConnections = true;
    this.#isDraining = true;
    for (const go of [...this.#waiting]) go();
    this.#noticeDrained();
    return this.#drained.promise;
  }

  #forget(response: ServerResponse): void {
    this.#unanswered.delete(response);
    this.#noticeDrained();
  }

  #noticeDrained(): void {
    if (this.#isDraining && this.#unanswered.size === 0) this.#drained.resolve();
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
    this.#unanswered.add(response);
    const leave = () => {
      request.socket.off('close', leave);
      this.#forget(response);
      gone.abort();
    };
    response.once('close', leave);
    // an answer that waits behind another one on its connection does not notice the end of that
    request.socket.once('close', leave);
    const asked: Asked = { request, response, body: await keptBody(request), sent: 0 };
    for (;;) {
      const place = await this.#whenPlaced(untilMs, gone.signal);
      if (!place) return;
      const outcome = await this.#attempt(place, asked);
      if (outcome === 'answered' || gone.signal.aborted) return;
      if (outcome === 'unknown') throw new VirtkeepError('controller_changed');
      if (this.#isDraining) throw new VirtkeepError('draining');
      await sleep(AGAIN_MS);
    }
  }

  /** @returns undefined when the client has gone @throws VirtkeepError no_controller when there is none in time */
  async #whenPlaced(untilMs: number, gone: AbortSignal): Promise<ActingPlace | undefined> {
    while (!gone.aborted) {
      if (performance.now() >= untilMs)
        throw new VirtkeepError('no_controller', {
          reason: this.#reason || 'the one that acts is not reached',
        });
      if (this.#place) return this.#place;
      if (this.#isDraining) throw new VirtkeepError('draining');
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

  async #attempt(place: ActingPlace, asked: Asked): Promise<Outcome> {
    const { request, response, body } = asked;
    const upstream = await this.#open(place, asked);
    const { promise, resolve } = Promise.withResolvers<Outcome>();
    const mayAskAgain = () =>
      body !== undefined && (isRead(request.method) || hasIdempotencyKey(request, body));
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
        ...answerHeaders(answer.headers),
        ...(this.closesConnections && { connection: 'close' }),
      });
      response.flushHeaders();
      if (answer.headers['content-type']?.startsWith('text/event-stream')) this.#forget(response);
      // one that breaks off must not look whole: its reader is cut off, too
      pipeline(answer, response, () => resolve('answered'));
    });
    upstream.once('error', () => {
      response.off('close', leave);
      if (response.headersSent) return;
      resolve(!isSent || (asked.sent < MOST_SENT && mayAskAgain()) ? 'again' : 'unknown');
    });
    upstream.once('socket', socket => {
      const send = () => {
        isSent = true;
        if (!upstream.reusedSocket) asked.sent += 1;
        if (body) upstream.end(body);
        else request.pipe(upstream);
      };
      if (upstream.reusedSocket) send();
      else socket.once('secureConnect', send);
    });
    return promise.finally(end);
  }

  /** It is cut off when another one acts, or when the one that acts is reached no more. @returns ends that */
  #endsWith(place: ActingPlace, upstream: ClientRequest): () => void {
    const pending: Pending = { epoch: place.epoch, end: reason => upstream.destroy(reason) };
    this.#pending.add(pending);
    const looking = setInterval(() => this.#look(place), LOOK_MS);
    looking.unref();
    return () => {
      clearInterval(looking);
      this.#pending.delete(pending);
    };
  }

  /** A network that swallows everything tells nothing for a quarter of an hour. */
  #look(place: ActingPlace): void {
    this.#living ??= this.#lives(place)
      .catch((error: Error) => {
        for (const pending of [...this.#pending]) if (pending.epoch === place.epoch) pending.end(error);
      })
      .finally(() => {
        this.#living = undefined;
      });
  }

  async #lives(place: ActingPlace): Promise<void> {
    const { reads: agent } = await this.#options.agents();
    const signal = AbortSignal.timeout(LIVES_MS);
    await new Promise<void>((resolve, reject) => {
      httpsRequest({ ...splitHostPort(place.address), agent, path: '/healthz', signal }, answer => {
        answer.resume();
        resolve();
      })
        .once('error', reject)
        .end();
    });
  }

  async #open(place: ActingPlace, asked: Asked): Promise<ClientRequest> {
    const { method, url: path } = asked.request;
    const { reads, writes } = await this.#options.agents();
    const agent = isRead(method) ? reads : writes;
    return httpsRequest({
      ...splitHostPort(place.address),
      agent,
      method,
      path,
      headers: this.#headersOf(asked),
    });
  }

  /** What a client says of others that it stands for counts only when it is a proxy that is trusted. */
  #headersOf({ request, body }: Asked): IncomingHttpHeaders {
    const headers = { ...withoutConnection(request.headers), ...framing(request, body) };
    const from = request.socket.remoteAddress ?? '';
    if (!this.#isTrusted(from, 0))
      for (const name of Object.keys(headers)) if (name.startsWith('x-forwarded-')) delete headers[name];
    const before = headers['x-forwarded-for'];
    headers['x-forwarded-for'] = before === undefined ? from : `${before}, ${from}`;
    headers['x-forwarded-proto'] ??= this.#options.config.tls.mode === 'off' ? 'http' : 'https';
    return headers;
  }
}

/** Of the body as it is sent on. */
function framing({ headers }: IncomingMessage, body: Buffer | undefined): IncomingHttpHeaders {
  const { 'content-length': length } = headers;
  if (body) return body.length > 0 || length !== undefined ? { 'content-length': String(body.length) } : {};
  // a message with both has the encoding that it names (RFC 9112, 6.3)
  if (length === undefined || headers['transfer-encoding'] !== undefined)
    return { 'transfer-encoding': 'chunked' };
  return { 'content-length': length };
}

const isRead = (method: string | undefined) => method === 'GET' || method === 'HEAD';

/**
 * A POST of somebody under a key is carried out once, however often it comes (`services/tasks/idempotency.ts`). A PUT may be carried out again,
 * over what others have changed since: whether that is well its client knows. Before a login no key counts.
 */
function hasIdempotencyKey({ method, headers }: IncomingMessage, body: Buffer): boolean {
  if (method !== 'POST' || headers.authorization === undefined) return false;
  if (!headers['content-type']?.startsWith('application/json')) return false;
  try {
    return givenKey(JSON.parse(body.toString())) !== undefined;
  } catch {
    return false;
  }
}

async function keptBody(request: IncomingMessage): Promise<Buffer | undefined> {
  const { 'transfer-encoding': encoding, 'content-length': length } = request.headers;
  if (encoding !== undefined || Number(length ?? 0) > KEPT_BYTES) return undefined;
  return Buffer.concat(await request.toArray());
}

/** Also without what the connection's own header names. */
function withoutConnection(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const named = (headers.connection ?? '')
    .split(',')
    .map(name => name.trim().toLowerCase())
    .filter(name => !KEPT.has(name) && !name.startsWith('x-forwarded-'));
  const left = { ...headers };
  for (const name of [...OF_CONNECTION, ...FRAMING, ...named]) delete left[name];
  return left;
}

/** The length stays: the body of a HEAD cannot be measured. */
function answerHeaders(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const { 'content-length': length } = headers;
  const left: IncomingHttpHeaders = {
    ...withoutConnection(headers),
    ...(length !== undefined && { 'content-length': length }),
  };
  delete left[ASK_ANOTHER];
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
