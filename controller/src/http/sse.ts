/**
 * The event stream. A client that reads slowly is told less often: of what waits for it, the newest of each thing is kept. When even that
 * is too much, it is told to load everything again (`reset`). Who reads nothing for a minute is cut off, and resumes with
 * `Last-Event-ID`. A stream ends when its token does, or is revoked, and when its user may do less or more: what it shows depends on that.
 */
import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Principal } from '../auth/principal.ts';
import { type Change, subjectOf } from '../services/journal/changes.ts';
import type { Services } from '../services/services.ts';
import { Shares } from '../services/shares.ts';
import { watchRight } from './auth.ts';
import { whenClosed } from './closed.ts';
import { UNBUFFERED } from './unbuffered.ts';

/** More does not wait for a client that reads slowly, characters. */
const MAX_WAITING_LENGTH = 1024 * 1024;
const RETRY_MS = 2000;
/** A piece is hardly longer, characters. */
const PIECE_LENGTH = 64 * 1024;
/** For a reader to take what was sent. */
const UNREAD_MS = 60_000;
/** For a reader to take what was written before the end. */
const LAST_WORDS_MS = 10_000;
/** setTimeout cannot wait longer; a stream of a token that lives longer is cut there, and resumes. */
const MAX_STREAM_MS = 24 * 3600 * 1000;

export class EventStreams {
  readonly #services: Services;
  readonly #places: Shares;
  readonly #pieces = new SharedPieces();

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
    const outgoing = new Outgoing(reply.raw, () => resetText(changes.lastId));
    outgoing.send('retry', `retry: ${RETRY_MS}\n\n`);
    outgoing.flush();
    const missed = lastId === undefined ? [] : changes.since(lastId);
    // one that is new here learns what to resume from
    if (missed?.length === 0) outgoing.send('id', `id: ${changes.lastId}\n\n`);
    else if (!missed) outgoing.reset();
    for (const change of missed ?? []) {
      if (outgoing.isResetting) break;
      outgoing.send(subjectOf(change), changeText(change, viewer));
    }
    outgoing.flush();
    const unsubscribe = changes.subscribe(told => {
      try {
        outgoing.pass(this.#pieces.of(told, viewer));
      } catch (error) {
        // it is called from a timer: nobody else is there to take it
        this.#services.log.error('a change could not be told', { error, request_id: request.id });
        outgoing.reset();
        outgoing.flush();
      }
    });
    const unwatch = watchRight(
      this.#services,
      request,
      () => end(),
      () => {
        outgoing.send('alive', ': alive\n\n');
        outgoing.flush();
      },
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
      changes.tell();
      outgoing.sendAll();
      stop();
      endSoon(reply.raw);
    };
    draining.addEventListener('abort', end, { once: true });
    whenClosed(reply.raw, stop);
    reply.raw.on('error', () => reply.raw.destroy());
    if (draining.aborted) end();
  }
}

const RESET = 'reset';

/** A change, as a listener reads it. */
interface Notice {
  subject: string;
  text: string;
}

/** What goes out in one: the notices, and how they are sent. */
interface Piece {
  notices: readonly Notice[];
  bytes: Buffer;
}

/** What a listener is told, in pieces that are worth sending, and no faster than it reads. */
class Outgoing {
  readonly #response: ServerResponse;
  readonly #resetText: () => string;
  /** By what they are about, in the order in which they came. */
  readonly #waiting = new Map<string, string>();
  #length = 0;
  /** Until the reader has taken what was sent. */
  #patience: NodeJS.Timeout | undefined;

  constructor(response: ServerResponse, resetText: () => string) {
    this.#response = response;
    this.#resetText = resetText;
    response.on('drain', () => {
      clearTimeout(this.#patience);
      this.#patience = undefined;
      this.flush();
    });
  }

  /**
   * Goes with what else waits, when `flush` is called, or before.
   * @param subject what still waits about the same is not sent any more: this says it all. Those of changes have spaces, others have none.
   */
  send(subject: string, text: string): void {
    this.#length += text.length - (this.#waiting.get(subject)?.length ?? 0);
    // goes to the end: a listener resumes from the last id that it saw
    this.#waiting.delete(subject);
    this.#waiting.set(subject, text);
    if (this.#length > PIECE_LENGTH) this.flush();
  }

  /** Sends these as they are while the reader takes them and nothing waits before them; others wait. */
  pass(pieces: readonly Piece[]): void {
    for (const { notices, bytes } of pieces) {
      if (this.#length === 0 && this.#isTaking) this.#response.write(bytes);
      else for (const { subject, text } of notices) this.send(subject, text);
    }
    this.flush();
  }

  /** In place of all that waits. */
  reset(): void {
    this.#waiting.clear();
    this.#length = 0;
    this.send(RESET, this.#resetText());
  }

  /** The reader is about to be told to load everything again. */
  get isResetting(): boolean {
    return this.#waiting.has(RESET);
  }

  /** Sends what the reader takes now; what is left goes when it has taken that. */
  flush(): void {
    while (this.#length > 0 && this.#isTaking) this.#sendPiece();
    if (this.#response.writableNeedDrain)
      this.#patience ??= setTimeout(() => this.#response.destroy(), UNREAD_MS);
    if (this.#length > MAX_WAITING_LENGTH) this.reset();
  }

  /** Sends what waits, whatever the reader takes. */
  sendAll(): void {
    while (this.#length > 0 && this.#isOpen) this.#sendPiece();
  }

  get #isTaking(): boolean {
    return !this.#response.writableNeedDrain && this.#isOpen;
  }

  get #isOpen(): boolean {
    return !this.#response.writableEnded && !this.#response.destroyed;
  }

  #sendPiece(): void {
    let piece = '';
    for (const [subject, text] of this.#waiting) {
      piece += text;
      this.#waiting.delete(subject);
      if (piece.length > PIECE_LENGTH) break;
    }
    this.#length -= piece.length;
    this.#response.write(piece);
  }

  stop(): void {
    clearTimeout(this.#patience);
  }
}

/** Listeners are told of the same changes in a row: what goes out is made once for those who see the same. */
class SharedPieces {
  #changes: readonly Change[] = [];
  #texts = new Map<string, string>();
  #pieces = new Map<string, Piece[]>();

  of(changes: readonly Change[], viewer: Principal): readonly Piece[] {
    if (changes !== this.#changes) {
      this.#changes = changes;
      // not cleared: the table of a map that was cleared knows the next one, so that none is let go of before all garbage is searched for
      this.#texts = new Map();
      this.#pieces = new Map();
    }
    const seenAs = changes.map(change => change.sameFor(viewer)).join('\n');
    let pieces = this.#pieces.get(seenAs);
    if (!pieces) {
      pieces = piecesOf(
        changes.map(change => ({ subject: subjectOf(change), text: this.#text(change, viewer) })),
      );
      this.#pieces.set(seenAs, pieces);
    }
    return pieces;
  }

  /** Most changes are told to two users alike even when one among them is not. */
  #text(change: Change, viewer: Principal): string {
    const key = `${change.id} ${change.sameFor(viewer)}`;
    let text = this.#texts.get(key);
    if (text === undefined) {
      text = changeText(change, viewer);
      this.#texts.set(key, text);
    }
    return text;
  }
}

function piecesOf(all: readonly Notice[]): Piece[] {
  const pieces: Piece[] = [];
  let notices: Notice[] = [];
  let joined = '';
  for (const one of all) {
    notices.push(one);
    joined += one.text;
    if (joined.length <= PIECE_LENGTH && one !== all.at(-1)) continue;
    pieces.push({ notices, bytes: Buffer.from(joined) });
    notices = [];
    joined = '';
  }
  return pieces;
}

/** Who does not take what is left waits for ever otherwise. */
function endSoon(response: ServerResponse): void {
  if (response.writableEnded) return;
  response.end();
  const timer = setTimeout(() => response.destroy(), LAST_WORDS_MS);
  timer.unref();
  whenClosed(response, () => clearTimeout(timer));
}

/** What was missed is not known, or too much: load the lists again. */
const resetText = (newestId: string) => `id: ${newestId}\nevent: reset\ndata: {}\n\n`;

function changeText(change: Change, viewer: Principal): string {
  const data = JSON.stringify({
    id: change.entityId,
    action: change.action,
    record: change.render(viewer) ?? null,
  });
  return `id: ${change.id}\nevent: ${change.kind}\ndata: ${data}\n\n`;
}
