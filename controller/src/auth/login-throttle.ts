/**
 * Wrong passwords are slowed down: each further failure doubles the wait, per user and address together, and, with more
 * patience, per address and per user alone (so that neither many users from one place nor one user from many places can
 * be guessed through). An attempt is counted before the password is checked, in one transaction, so parallel guesses do
 * not slip past. In a place from where a user logged in lately, failures of others do not keep that user out: there only the
 * pair's own failures count.
 */
import { createHash } from 'node:crypto';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Database } from '../store/schema.ts';
import { addressGroup } from './address-group.ts';

const FORGET_MS = 15 * 60 * 1000;
const MAX_WAIT_MS = 5 * 60 * 1000;
/**
 * The longest wait where the user logged in lately. Others in that place may guess at the same name, and each guess begins the
 * wait anew: it is short, so that the user finds a moment to log in, which clears the count.
 */
const MAX_WAIT_KNOWN_MS = 10 * 1000;
/**
 * From so many failures of one user in one place on, each within `FORGET_MS` of the one before, somebody is guessing: nobody
 * mistypes four times as often as is free (`FREE_FAILURES.pair`). Then this bound holds in place of the shorter one: a sixth of the
 * guesses, and still a turn for the user each minute.
 */
const GUESSES = 20;
const MAX_WAIT_GUESSING_MS = 60 * 1000;
/** Clocks differ a little; a failure later than this is of a clock that was put right, and counts no longer. */
const MAX_AHEAD_MS = 60 * 1000;
const KNOWN_FOR_MS = 30 * 86_400_000;
const FREE_FAILURES = { pair: 5, address: 30, user: 50 } as const;

interface Subject {
  id: string;
  free: number;
}

export class LoginThrottle {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Counts an attempt. @throws too_many_logins with the seconds to wait; then it is not counted. */
  attempt(username: string, address: string, now = new Date()): Promise<void> {
    const subjects = subjectsOf(username, address);
    return this.#db.transaction().execute(async trx => {
      const hasLoggedIn = await isKnown(trx, subjects[0]!.id, now);
      for (const subject of hasLoggedIn ? subjects.slice(0, 1) : subjects) {
        const row = await trx
          .selectFrom('login_failures')
          .selectAll()
          .where('subject', '=', subject.id)
          .executeTakeFirst();
        const waitMs = row === undefined ? 0 : remainingMs(row, subject.free, hasLoggedIn, now);
        if (waitMs > 0) throw new VirtkeepError('too_many_logins', { seconds: Math.ceil(waitMs / 1000) });
      }
      for (const { id } of subjects) await count(trx, id, now);
    });
  }

  /** The password was right: the pair starts afresh and is known, the others get this attempt back. */
  succeeded(username: string, address: string, now = new Date()): Promise<void> {
    const [pair, ...others] = subjectsOf(username, address);
    return this.#db.transaction().execute(async trx => {
      await trx.deleteFrom('login_failures').where('subject', '=', pair!.id).execute();
      for (const { id } of others) {
        await trx
          .updateTable('login_failures')
          .set(eb => ({ failures: eb('failures', '-', 1) }))
          .where('subject', '=', id)
          .where('failures', '>', 0)
          .execute();
      }
      const last_success = now.toISOString();
      await trx
        .insertInto('known_logins')
        .values({ subject: pair!.id, last_success })
        .onConflict(conflict => conflict.column('subject').doUpdateSet({ last_success }))
        .execute();
    });
  }

  async prune(now: Date): Promise<void> {
    const { from, to } = countedTimes(now);
    await this.#db
      .deleteFrom('login_failures')
      .where(eb => eb.or([eb('last_failure', '<', from), eb('last_failure', '>', to)]))
      .execute();
    await this.#db.deleteFrom('known_logins').where('last_success', '<', knownSince(now)).execute();
  }
}

async function isKnown(db: Database, subject: string, now: Date): Promise<boolean> {
  const row = await db
    .selectFrom('known_logins')
    .select('subject')
    .where('subject', '=', subject)
    .where('last_success', '>=', knownSince(now))
    .executeTakeFirst();
  return row !== undefined;
}

async function count(db: Database, subject: string, now: Date): Promise<void> {
  const { from, to } = countedTimes(now);
  const last_failure = now.toISOString();
  await db
    .insertInto('login_failures')
    .values({ subject, failures: 1, last_failure })
    .onConflict(conflict =>
      conflict.column('subject').doUpdateSet(eb => ({
        failures: eb
          .case()
          .when('login_failures.last_failure', '<', from)
          .then(1)
          .when('login_failures.last_failure', '>', to)
          .then(1)
          .else(eb('login_failures.failures', '+', 1))
          .end(),
        last_failure,
      })),
    )
    .execute();
}

function knownSince(now: Date): string {
  return new Date(now.getTime() - KNOWN_FOR_MS).toISOString();
}

/** The times between which failures still count. */
function countedTimes(now: Date): { from: string; to: string } {
  const at = (ms: number) => new Date(now.getTime() + ms).toISOString();
  return { from: at(-FORGET_MS), to: at(MAX_AHEAD_MS) };
}

function remainingMs(
  row: { failures: number; last_failure: string },
  free: number,
  hasLoggedIn: boolean,
  now: Date,
): number {
  const { from, to } = countedTimes(now);
  if (row.failures < free || row.last_failure < from || row.last_failure > to) return 0;
  const sinceMs = Math.max(0, now.getTime() - new Date(row.last_failure).getTime());
  const longestMs = longestWaitMs(hasLoggedIn, row.failures);
  return Math.min(longestMs, 1000 * 2 ** Math.min(20, row.failures - free)) - sinceMs;
}

function longestWaitMs(hasLoggedIn: boolean, failures: number): number {
  if (!hasLoggedIn) return MAX_WAIT_MS;
  return failures < GUESSES ? MAX_WAIT_KNOWN_MS : MAX_WAIT_GUESSING_MS;
}

/** Hashed, so that a password typed into the wrong field does not end in the database. The pair comes first. */
function subjectsOf(username: string, address: string): Subject[] {
  const place = addressGroup(address);
  const id = (text: string) => createHash('sha256').update(text).digest('hex');
  return [
    { id: id(`pair ${username} ${place}`), free: FREE_FAILURES.pair },
    { id: id(`address ${place}`), free: FREE_FAILURES.address },
    { id: id(`user ${username}`), free: FREE_FAILURES.user },
  ];
}
