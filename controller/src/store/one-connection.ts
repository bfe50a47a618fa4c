/**
 * The connection of a controller to PostgreSQL, as kysely's dialect wants its pool. There is one: the services were written for a database
 * that does one transaction after the other, and so it stays when whoever wants the connection waits in a row for it.
 *
 * A connection that cannot be had now is tried again for a while: the server restarts, or another one takes its place. One that breaks fails
 * the query at hand, since nobody knows whether it was carried out; the next one has a new connection.
 */
import { setTimeout } from 'node:timers/promises';
import { errnoOf, isVirtkeepError, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { PostgresPool, PostgresPoolClient } from 'kysely';
import pg from 'pg';
import type { PostgresTarget } from './target.ts';

const PATIENCE_MS = 30_000;
const RETRY_MS = 250;
/** Of one attempt. */
const CONNECT_TIMEOUT_MS = 10_000;
/** A server that says nothing for this long while it is asked is gone; a migration of many rows may take a while. */
const QUERY_TIMEOUT_MS = 600_000;
/** Of a controller that acts: everything it does waits behind one statement. */
const BRIEF: pg.ClientConfig = { query_timeout: 30_000, statement_timeout: 25_000, lock_timeout: 10_000 };
/** Of its commands, which must not keep a controller from a row because somebody has stopped them. */
const IDLE_IN_TRANSACTION_MS = 60_000;
const APPLICATION = 'virtkeep';

/** Sizes, sequences and sums are numbers below 2^53 here. */
const NUMBERS: readonly number[] = [pg.types.builtins.INT8, pg.types.builtins.NUMERIC];
const TYPES = {
  getTypeParser: (oid: number, format?: 'text' | 'binary') =>
    NUMBERS.includes(oid) ? Number : pg.types.getTypeParser(oid, format),
} as typeof pg.types;

/** What a server says that starts, stops, or has too many connections; and what comes from the network before it says anything. */
const PASSING = new Set([
  ...['57P01', '57P02', '57P03', '53300'],
  ...['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOENT', 'ENOTFOUND', 'EAI_AGAIN'],
  ...['EHOSTUNREACH', 'ENETUNREACH', 'EHOSTDOWN'],
]);

export class OneConnection implements PostgresPool {
  readonly options = {};
  readonly #target: PostgresTarget;
  readonly #patienceMs: number;
  #held: HeldClient | undefined;
  /** Settles when who wanted the connection last is done with it. */
  #last: Promise<void> = Promise.resolve();
  #isEnding = false;

  constructor(target: PostgresTarget, patienceMs = PATIENCE_MS) {
    this.#target = target;
    this.#patienceMs = patienceMs;
  }

  /** @throws database_unavailable, when it cannot be had in time; what the target's `admit` throws. */
  async connect(): Promise<PostgresPoolClient> {
    const turn = Promise.withResolvers<void>();
    const before = this.#last;
    this.#last = turn.promise;
    await before;
    try {
      if (this.#held?.isBroken !== false) this.#held = await this.#open();
      this.#held.whenReleased = turn.resolve;
      return this.#held as unknown as PostgresPoolClient;
    } catch (error) {
      turn.resolve();
      throw error;
    }
  }

  async end(): Promise<void> {
    this.#isEnding = true;
    await this.#last;
    await this.#held?.end();
  }

  async #open(): Promise<HeldClient> {
    const deadline = performance.now() + this.#patienceMs;
    for (;;) {
      try {
        return await connected(this.#target);
      } catch (error) {
        if (!(error instanceof NotConnected)) throw error;
        const isOver = this.#isEnding || performance.now() > deadline;
        if (isOver || !isPassing(error.cause)) throw unavailable(error.cause);
      }
      await setTimeout(RETRY_MS);
    }
  }
}

/** A client of kysely's kind, without cursors: one at a time uses it. It says `database_unavailable` when its connection breaks. */
class HeldClient {
  readonly #client: pg.Client;
  isBroken = false;
  whenReleased = () => {};

  constructor(client: pg.Client) {
    this.#client = client;
    // also while nobody asks anything
    for (const event of ['error', 'end'] as const)
      client.on(event, () => {
        this.isBroken = true;
      });
  }

  get processID(): number {
    return (this.#client as unknown as { processID: number }).processID;
  }

  async query(text: string, values: readonly unknown[] = []): Promise<pg.QueryResult> {
    try {
      return await this.#client.query(text, values.map(storable));
    } catch (error) {
      if (isLate(error)) throw unavailable(error);
      if (!isLost(error)) throw error;
      this.isBroken = true;
      throw unavailable(error);
    }
  }

  release(isUnusable = false): void {
    if (isUnusable) this.isBroken = true;
    if (this.isBroken) this.end().catch(() => {});
    this.whenReleased();
  }

  end(): Promise<void> {
    return this.#client.end();
  }
}

class NotConnected extends Error {}

async function connected(target: PostgresTarget): Promise<HeldClient> {
  const client = clientOf(target);
  const held = new HeldClient(client);
  // some of what goes wrong is told by the event alone
  const failed = Promise.withResolvers<never>();
  client.once('error', failed.reject);
  try {
    await Promise.race([client.connect(), failed.promise]).catch(cause => {
      throw new NotConnected('', { cause });
    });
    await target.admit?.(async (text, values = []) => (await held.query(text, values)).rows);
    return held;
  } catch (error) {
    held.end().catch(() => {});
    throw error;
  } finally {
    client.off('error', failed.reject);
  }
}

/** @throws database_unavailable, when a file that the URL names cannot be read. */
export function clientOf(target: PostgresTarget, more: pg.ClientConfig = {}): pg.Client {
  const { url, password, applicationName, isBrief } = target;
  try {
    return new pg.Client({
      connectionString: connectionString(url, password),
      application_name: applicationName ?? APPLICATION,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      query_timeout: QUERY_TIMEOUT_MS,
      keepAlive: true,
      types: TYPES,
      idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
      ...(isBrief && BRIEF),
      ...more,
    });
  } catch (error) {
    throw unavailable(error);
  }
}

/** As the driver reads it: TLS as libpq does it, and the password where a URL without a host can have it, too. */
function connectionString(text: string, password: string | undefined): string {
  const url = new URL(text);
  if (url.searchParams.has('sslmode')) url.searchParams.set('uselibpqcompat', 'true');
  if (password !== undefined) url.searchParams.set('password', password);
  return url.href;
}

/** PostgreSQL keeps no NUL in a text; what a guest or a user tells with one is kept with the sign for what cannot be shown. */
export function storable(value: unknown): unknown {
  return typeof value === 'string' && value.includes('\0') ? value.replaceAll('\0', '\ufffd') : value;
}

/** The driver's own errors, and those after which the server hangs up: nobody answers any more. Its words are in its own language. */
function isLost(error: unknown): boolean {
  return !(error instanceof pg.DatabaseError) || /^(57P0|08|25P0)/.test(error.code ?? '');
}

/** It took too long, or somebody holds a row: it was not done, and the connection is good. */
const isLate = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && (error.code === '57014' || error.code === '55P03');

function isPassing(error: unknown): boolean {
  return (
    PASSING.has(errnoOf(error) ?? '') || /^(Connection terminated|timeout expired)/.test(reasonOf(error))
  );
}

function unavailable(error: unknown): VirtkeepError {
  if (isVirtkeepError(error)) return error;
  return new VirtkeepError('database_unavailable', { reason: reasonOf(error) }, { cause: error });
}
