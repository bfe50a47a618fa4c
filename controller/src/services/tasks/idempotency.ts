/**
 * Idempotency keys: the same key by the same user with the same request gives the same answer and the same task;
 * another request under it is a conflict. Kept 24 hours.
 *
 * A long action's task id is reserved with the key, before anything starts. A repetition after a crash finds the id,
 * and where the task was never written it is started under that same id, which the node knows as its operation id.
 * Only good answers are kept: a request that failed before it changed anything may be repeated under its key. One of which nobody
 * knows whether it was carried out is refused when it is repeated, unless it says what is to be (PUT) and may be said twice.
 *
 * Nothing of a request is stored but a keyed hash, since it may hold a password. An answer that may hold a secret stays in
 * memory for a while; later its request is refused instead of being carried out twice.
 */
import { createHmac } from 'node:crypto';
import { type ErrorKey, VirtkeepError } from '@virtkeep/shared/errors';
import { parseExact } from '@virtkeep/shared/exact-json';
import { ExpiringMap } from '@virtkeep/shared/expiring-map';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import { isUniqueViolation } from '../../store/dialect.ts';
import type { Database, IdempotencyRow } from '../../store/schema.ts';

/** Answers that hold a secret are in memory alone. */
const SECRET_ANSWERS_MS = 600_000;
const MAX_SECRET_ANSWERS = 1_000;
const MAX_SECRET_CHARACTERS = 32 * MiB;

export const KEY_LIFETIME_MS = 24 * 3600 * 1000;

/** Failures after which what was asked for may be done, or still be: a command that its guest has got, a row whose writing nobody confirmed. */
const MAY_BE_DONE: ReadonlySet<string> = new Set<ErrorKey>([
  'canceled',
  'draining',
  'timed_out',
  'guest_command_timed_out',
  'outcome_unknown',
  'libvirt_failed',
  'libvirt_unreachable',
  'database_unavailable',
  'internal',
]);

/** What a route knows of the key its request carries. */
export interface IdempotentRequest {
  userId: string;
  key: string;
  /** The id of the task, should the request make one; null for what never does. */
  taskId: string | null;
  /** The answer given before, when there is one. */
  answer: { status: number; body: unknown } | null;
  /** Lets identical requests that wait here go on; harmless when repeated. */
  release: () => void;
}

export interface KeyedRequest {
  userId: string;
  key: string;
  method: string;
  path: string;
  body: unknown;
  longAction: boolean;
}

export class IdempotencyService {
  readonly #db: Database;
  readonly #hashKey: Uint8Array;
  readonly #maxPerUser: () => number;
  readonly #running = new Map<string, Promise<void>>();
  readonly #secretAnswers = new ExpiringMap<string>({
    lifeMs: SECRET_ANSWERS_MS,
    maxEntries: MAX_SECRET_ANSWERS,
    weight: { of: text => text.length, max: MAX_SECRET_CHARACTERS },
  });

  /**
   * @param hashKey without it nobody can try passwords against the stored hashes
   * @param maxPerUser keys that a user may have within their lifetime
   */
  constructor(db: Database, hashKey: Uint8Array, maxPerUser: () => number) {
    this.#db = db;
    this.#maxPerUser = maxPerUser;
    this.#hashKey = hashKey;
  }

  /**
   * Takes the key, or finds who took it; waits while an identical request is being worked on here.
   * Each `begin` that returns is followed by one `complete` or `abandon`, whatever happens.
   * @throws idempotency_conflict when the key stands for another request; idempotency_answer_gone; too_many_requests.
   */
  async begin(request: KeyedRequest): Promise<IdempotentRequest> {
    const slot = slotOf(request);
    for (let before = this.#running.get(slot); before; before = this.#running.get(slot)) await before;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#running.set(slot, promise);
    const release = () => {
      resolve();
      if (this.#running.get(slot) === promise) this.#running.delete(slot);
    };
    try {
      return await this.#take(request, release);
    } catch (error) {
      release();
      throw error;
    }
  }

  /** The request ended well with this answer, which is kept unless a task carries it. Secret answers pass `store: false` and are kept in memory only. */
  async complete(request: IdempotentRequest, status: number, body: unknown, store: boolean): Promise<void> {
    try {
      if (request.answer === null && !(await this.#taskExists(request.taskId))) {
        const answer = JSON.stringify(body ?? null);
        if (!store) this.#secretAnswers.set(slotOf(request), answer);
        await this.#db
          .updateTable('idempotency')
          .set({ status, answer_json: store ? answer : null })
          .where('user_id', '=', request.userId)
          .where('idempotency_key', '=', request.key)
          .execute();
      }
    } finally {
      request.release();
    }
  }

  /** The request failed: the key is free again, unless a task carries it, or what was asked for may be done all the same. */
  async abandon(request: IdempotentRequest, errorKey: string | null): Promise<void> {
    try {
      if (errorKey !== null && MAY_BE_DONE.has(errorKey)) return;
      if (request.answer === null && !(await this.#taskExists(request.taskId))) {
        await this.#db
          .deleteFrom('idempotency')
          .where('user_id', '=', request.userId)
          .where('idempotency_key', '=', request.key)
          .execute();
      }
    } finally {
      request.release();
    }
  }

  /** Forgets keys older than their lifetime. */
  async prune(now: Date): Promise<void> {
    const before = new Date(now.getTime() - KEY_LIFETIME_MS).toISOString();
    await this.#db.deleteFrom('idempotency').where('created', '<', before).execute();
  }

  async #take(request: KeyedRequest, release: () => void): Promise<IdempotentRequest> {
    const hash = requestHash(request, this.#hashKey);
    const found = await this.#find(request);
    if (found === undefined) {
      await this.#requireRoom(request.userId);
      const taskId = request.longAction ? newId() : null;
      const taken = await this.#insert(request, hash, taskId);
      if (!taken) throw new VirtkeepError('idempotency_conflict');
      return { userId: request.userId, key: request.key, taskId, answer: null, release };
    }
    if (found.request_hash !== hash) throw new VirtkeepError('idempotency_conflict');
    // nobody is at it: its controller ended, or it failed so that nobody knows
    if (found.status === null && found.task_id === null && request.method === 'POST')
      throw new VirtkeepError('idempotency_answer_gone');
    const answer = found.status === null ? null : this.#answerOf(request, found.status, found.answer_json);
    return { userId: request.userId, key: request.key, taskId: found.task_id, answer, release };
  }

  /** A key given away in favour of a newer one would let its request be carried out twice. So there is none left. */
  async #requireRoom(userId: string): Promise<void> {
    const now = Date.now();
    const since = new Date(now - KEY_LIFETIME_MS).toISOString();
    const { number, oldest } = await this.#db
      .selectFrom('idempotency')
      .select(({ fn }) => [fn.countAll<number>().as('number'), fn.min('created').as('oldest')])
      .where('user_id', '=', userId)
      .where('created', '>=', since)
      .executeTakeFirstOrThrow();
    if (oldest === null || Number(number) < this.#maxPerUser()) return;
    const freeMs = new Date(oldest).getTime() + KEY_LIFETIME_MS - now;
    throw new VirtkeepError('too_many_requests', { seconds: Math.max(1, Math.ceil(freeMs / 1000)) });
  }

  #answerOf(request: KeyedRequest, status: number, stored: string | null): { status: number; body: unknown } {
    const text = stored ?? this.#secretAnswers.get(slotOf(request));
    if (text === undefined) throw new VirtkeepError('idempotency_answer_gone');
    return { status, body: parseExact(text) };
  }

  async #find(request: KeyedRequest): Promise<IdempotencyRow | undefined> {
    const row = await this.#db
      .selectFrom('idempotency')
      .selectAll()
      .where('user_id', '=', request.userId)
      .where('idempotency_key', '=', request.key)
      .executeTakeFirst();
    if (row === undefined || Date.now() - new Date(row.created).getTime() < KEY_LIFETIME_MS) return row;
    await this.prune(new Date());
    return undefined;
  }

  async #insert(request: KeyedRequest, hash: string, taskId: string | null): Promise<boolean> {
    try {
      await this.#db
        .insertInto('idempotency')
        .values({
          user_id: request.userId,
          idempotency_key: request.key,
          request_hash: hash,
          task_id: taskId,
          status: null,
          answer_json: null,
          created: new Date().toISOString(),
        })
        .execute();
      return true;
    } catch (error) {
      if (isUniqueViolation(error)) return false;
      throw error;
    }
  }

  async #taskExists(taskId: string | null): Promise<boolean> {
    if (taskId === null) return false;
    const row = await this.#db.selectFrom('tasks').select('id').where('id', '=', taskId).executeTakeFirst();
    return row !== undefined;
  }
}

function slotOf({ userId, key }: { userId: string; key: string }): string {
  return `${userId} ${key}`;
}

/** The same request gives the same hash, whatever the order of its fields. */
function requestHash(request: KeyedRequest, hashKey: Uint8Array): string {
  const path = request.path.replace(/\/+$/, '');
  return createHmac('sha256', hashKey)
    .update(`${request.method} ${path} ${stableJson(request.body)}`)
    .digest('hex');
}

function stableJson(value: unknown): string {
  return JSON.stringify(value, (_key, item: unknown) =>
    typeof item === 'object' && item !== null && !Array.isArray(item)
      ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
      : item,
  );
}
