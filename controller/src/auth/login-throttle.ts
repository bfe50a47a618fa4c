/**
 * Failed logins are slowed down: each further failure doubles the wait, per user and address together, and, with more
 * patience, per address and per user alone (so that neither many users from one place nor one user from many places can
 * be guessed through). An attempt is counted before the password is checked, so parallel guesses do not slip past.
 */
import { createHash } from 'node:crypto';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Database } from '../store/schema.ts';

const FORGET_MS = 15 * 60 * 1000;
const MAX_WAIT_MS = 5 * 60 * 1000;
const FREE_FAILURES = { pair: 5, address: 30, user: 50 } as const;

export class LoginThrottle {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Counts an attempt. @throws too_many_logins with the seconds to wait. */
  async attempt(username: string, address: string, now = new Date()): Promise<void> {
    const subjects = subjectsOf(username, address);
    for (const subject of subjects) {
      const row = await this.#row(subject.id);
      const waitMs = row === undefined ? 0 : remainingMs(row, subject.free, now);
      if (waitMs > 0) throw new VirtkeepError('too_many_logins', { seconds: Math.ceil(waitMs / 1000) });
    }
    for (const subject of subjects) await this.#count(subject.id, now);
  }

  /** The password was right: the pair starts afresh, the others get this attempt back. */
  async succeeded(username: string, address: string): Promise<void> {
    const [pair, ...others] = subjectsOf(username, address);
    await this.#db.deleteFrom('login_failures').where('subject', '=', pair!.id).execute();
    for (const { id } of others) {
      await this.#db
        .updateTable('login_failures')
        .set(eb => ({ failures: eb('failures', '-', 1) }))
        .where('subject', '=', id)
        .where('failures', '>', 0)
        .execute();
    }
  }

  async prune(now: Date): Promise<void> {
    const before = new Date(now.getTime() - FORGET_MS).toISOString();
    await this.#db.deleteFrom('login_failures').where('last_failure', '<', before).execute();
  }

  #row(subject: string) {
    return this.#db
      .selectFrom('login_failures')
      .selectAll()
      .where('subject', '=', subject)
      .executeTakeFirst();
  }

  async #count(subject: string, now: Date): Promise<void> {
    const row = await this.#row(subject);
    const forgotten = row === undefined || now.getTime() - new Date(row.last_failure).getTime() > FORGET_MS;
    const values = { failures: forgotten ? 1 : row.failures + 1, last_failure: now.toISOString() };
    await this.#db
      .insertInto('login_failures')
      .values({ subject, ...values })
      .onConflict(conflict => conflict.column('subject').doUpdateSet(values))
      .execute();
  }
}

function remainingMs(row: { failures: number; last_failure: string }, free: number, now: Date): number {
  if (row.failures < free) return 0;
  const sinceMs = now.getTime() - new Date(row.last_failure).getTime();
  if (sinceMs > FORGET_MS) return 0;
  const waitMs = Math.min(MAX_WAIT_MS, 1000 * 2 ** Math.min(20, row.failures - free));
  return waitMs - sinceMs;
}

/** Hashed, so that a password typed into the wrong field does not end in the database. */
function subjectsOf(username: string, address: string): { id: string; free: number }[] {
  const id = (text: string) => createHash('sha256').update(text).digest('hex');
  return [
    { id: id(`pair ${username} ${address}`), free: FREE_FAILURES.pair },
    { id: id(`address ${address}`), free: FREE_FAILURES.address },
    { id: id(`user ${username}`), free: FREE_FAILURES.user },
  ];
}
