/**
 * The event stream. A client that reads too slowly is cut off rather than buffered for: at most MAX_BUFFERED_BYTES wait
 * in its socket, and it resumes with `Last-Event-ID` where it was. A stream ends when its token does, or is revoked, and when
 * its user may do less or more: what it shows depends on that.
 */
import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Principal } from '../auth/principal.ts';
import type { Change } from '../services/journal/changes.ts';
import type { Services } from '../services/services.ts';
import { Shares } from '../services/shares.ts';
import { watchRight } from './auth.ts';
import { whenClosed } from './closed.ts';
import { UNBUFFERED } from './unbuffered.ts';

const MAX_BUFFERED_BYTES = 1024 * 1024;
const RETRY_MS = 2000;
/** Changes within this time go out as one: each piece is a record of TLS and a call of the kernel, for each listener, ms. */
const TOGETHER_MS = 20;
/** So many characters wait for nothing. */
const TOGETHER_LENGTH = 64 * 1024;
/** For a reader to take what was written before the end. */
const LAST_WORDS_MS = 10_000;
/** setTimeout cannot wait longer; a stream of a token that lives longer is cut there, and resumes. */
const MAX_STREAM_MS = 24 * 3600 * 1000;

export class EventStreams {
  readonly #services: Services;
  readonly #places: Shares;
  readonly #texts = new ChangeTexts();

  constructor(services: Services) {
    this.#services = services;
    const { limits } = services.config;
    this.#places = new Shares(() => ({ all: limits.event_streams, perUser: limits.event_streams_per_user }));
  }

  /** Takes the reply over until the client goes. @throws too_many_requests above the configured numbers. */
  open(request: FastifyRequest, reply: FastifyReply, viewer: Principal): void {
    const leave = this.#places.take(viewer.id);
    whenClosed(reply.raw, leave);
    reply.hijack();
    const headers = {
      ...reply.getHeaders(),
      ...UNBUFFERED,
      'content-type': 'text/event-stream; charset=utf-8',
    };
    reply.raw.writeHead(200, headers as Record<string, string>);
    const lastId = request.headers['last-event-id'];
    const reader = { viewer, lastId: typeof lastId === 'string' ? lastId : undefined };
    this.#serve(request, reply, reader, leave);
  }

  /** @param leave frees the place, once or more often */
  #serve(
    request: FastifyRequest,
    reply: FastifyReply,
    { viewer, lastId }: { viewer: Principal; lastId: string | undefined },
    leave: () => void,
  ): void {
    const { changes, draining } = this.#services;
    const outgoing = new Outgoing(reply.raw);
    const send = (text: string) => outgoing.send(text);
    send(`retry: ${RETRY_MS}\n\n`);
    for (const text of backlog(changes.lastId, lastId === undefined ? [] : changes.since(lastId), viewer))
      send(text);
    outgoing.flush();
    const unsubscribe = changes.subscribe(change => send(this.#texts.of(change, viewer)));
    const unwatch = watchRight(
      this.#services,
      request,
      () => end(),
      () => send(': alive\n\n'),
    );
    const leftMs = Math.min(MAX_STREAM_MS, viewer.expiresOn.getTime() - Date.now());
    const expiry = setTimeout(() => end(), leftMs);
    const stop = () => {
      outgoing.stop();
      unsubscribe();
      unwatch();
      clearTimeout(expiry);
      draining.removeEventListener('abort', end);
      leave();
    };
    const end = () => {
      outgoing.flush();
      stop();
      endSoon(reply.raw);
    };
    draining.addEventListener('abort', end, { once: true });
    whenClosed(reply.raw, stop);
    reply.raw.on('error', () => reply.raw.destroy());
    if (draining.aborted) end();
  }
}

/** What a listener is told, in pieces that are worth sending. */
class Outgoing {
  readonly #response: ServerResponse;
  #waiting = '';
  #timer: NodeJS.Timeout | undefined;

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  send(text: string): void {
    this.#waiting += text;
    if (this.#waiting.length > TOGETHER_LENGTH) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), TOGETHER_MS);
  }

  /** Sends what waits, and cuts off who has not taken what was sent before. */
  flush(): void {
    this.stop();
    if (this.#waiting === '' || this.#response.writableEnded) return;
    this.#response.write(this.#waiting);
    this.#waiting = '';
    if (this.#response.writableLength > MAX_BUFFERED_BYTES) this.#response.destroy();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

/** A change is told to all listeners in a row: its text is made once for those who see the same. */
class ChangeTexts {
  #change: Change | undefined;
  readonly #texts = new Map<string, string>();

  of(change: Change, viewer: Principal): string {
    if (change !== this.#change) this.#texts.clear();
    this.#change = change;
    const key = change.sameFor(viewer);
    const text = this.#texts.get(key) ?? changeText(change, viewer);
    this.#texts.set(key, text);
    return text;
  }
}

/** Who does not take what is left waits for ever otherwise. */
function endSoon(response: ServerResponse): void {
  if (response.writableEnded) return;
  response.end();
  const timer = setTimeout(() => response.destroy(), LAST_WORDS_MS);
  timer.unref();
  whenClosed(response, () => clearTimeout(timer));
}

/** What a client that resumes has missed; `reset` when that is not known. A new one gets the id to resume from. */
function backlog(newestId: string, missed: Change[] | null, viewer: Principal): string[] {
  if (missed === null) return [`id: ${newestId}\nevent: reset\ndata: {}\n\n`];
  if (missed.length === 0) return [`id: ${newestId}\n\n`];
  return missed.map(change => changeText(change, viewer));
}

function changeText(change: Change, viewer: Principal): string {
  const data = JSON.stringify({
    id: change.entityId,
    action: change.action,
    record: change.render(viewer) ?? null,
  });
  return `id: ${change.id}\nevent: ${change.kind}\ndata: ${data}\n\n`;
}
