/**
 * The event stream. A client that reads slowly is told less often: of what waits for it, the newest of each thing is kept. One for whom
 * even that is too much is cut off, and resumes with `Last-Event-ID` where it was. A stream ends when its token does, or is revoked, and
 * when its user may do less or more: what it shows depends on that.
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

/** So many characters wait for a client that does not read. */
const MAX_WAITING_LENGTH = 1024 * 1024;
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
    outgoing.send('retry', `retry: ${RETRY_MS}\n\n`);
    const missed = lastId === undefined ? [] : changes.since(lastId);
    if (missed === null) outgoing.send('reset', `id: ${changes.lastId}\nevent: reset\ndata: {}\n\n`);
    // one that is new here learns what to resume from
    else if (missed.length === 0) outgoing.send('id', `id: ${changes.lastId}\n\n`);
    else for (const change of missed) outgoing.send(subjectOf(change), changeText(change, viewer));
    outgoing.flush();
    const unsubscribe = changes.subscribe(change =>
      outgoing.send(subjectOf(change), this.#texts.of(change, viewer)),
    );
    const unwatch = watchRight(
      this.#services,
      request,
      () => end(),
      () => outgoing.send('alive', ': alive\n\n'),
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
      outgoing.write();
      stop();
      endSoon(reply.raw);
    };
    draining.addEventListener('abort', end, { once: true });
    whenClosed(reply.raw, stop);
    reply.raw.on('error', () => reply.raw.destroy());
    if (draining.aborted) end();
  }
}

/** What a listener is told, in pieces that are worth sending, and no faster than it reads. */
class Outgoing {
  readonly #response: ServerResponse;
  /** By what they are about, in the order in which they came. */
  readonly #waiting = new Map<string, string>();
  #length = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(response: ServerResponse) {
    this.#response = response;
    response.on('drain', () => this.flush());
  }

  /** @param subject what still waits about the same is not sent any more: this says it all */
  send(subject: string, text: string): void {
    this.#length += text.length - (this.#waiting.get(subject)?.length ?? 0);
    // goes to the end: a listener resumes from the last id that it saw
    this.#waiting.delete(subject);
    this.#waiting.set(subject, text);
    if (this.#length > TOGETHER_LENGTH) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), TOGETHER_MS);
  }

  /** Sends what waits once all was taken that was sent before, and cuts off those for whom too much waits. */
  flush(): void {
    if (!this.#response.writableNeedDrain) this.write();
    else if (this.#length > MAX_WAITING_LENGTH) this.#response.destroy();
    else this.stop();
  }

  /** Sends what waits. */
  write(): void {
    this.stop();
    if (this.#length === 0 || this.#response.writableEnded) return;
    this.#response.write([...this.#waiting.values()].join(''));
    this.#waiting.clear();
    this.#length = 0;
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

/** The newest change of a thing says all that earlier ones of it did, but what it is that happened. */
const subjectOf = ({ kind, entityId, action }: Change) => `${kind} ${entityId} ${action}`;

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

function changeText(change: Change, viewer: Principal): string {
  const data = JSON.stringify({
    id: change.entityId,
    action: change.action,
    record: change.render(viewer) ?? null,
  });
  return `id: ${change.id}\nevent: ${change.kind}\ndata: ${data}\n\n`;
}
