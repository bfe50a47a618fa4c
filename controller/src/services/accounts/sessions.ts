/**
 * Logins: what all tokens refreshed from one giving of the password have in common, so that it is ended as one. A login counts by its
 * tokens alone; its row tells people of it, and one that has none gets it when it is used next.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { TokenClaims } from '../../auth/jwt.ts';
import type { Principal } from '../../auth/principal.ts';
import { MAX_TOKEN_LIFETIME_S } from '../../config.ts';
import type { Database, SessionRow, UserRow } from '../../store/schema.ts';

export interface SessionRecord {
  id: string;
  user: { id: number; username: string };
  created: string;
  last_used: string;
  expires_on: string;
  address: string;
  client: string;
  /** The one by which the viewer asks. */
  current: boolean;
}

type Login = Pick<TokenClaims, 'family' | 'origIat' | 'expiresOn'>;

const DAY_MS = 86_400_000;
/** A login can be prolonged by refreshing for this long, then the password is asked for again. */
export const REFRESH_LIMIT_MS = 7 * DAY_MS;
/** `last_used` is for people: it is not written at each request. */
const LAST_USED_STEP_MS = 60_000;
/** Logins whose row is remembered. */
const MAX_REMEMBERED = 10_000;
/**
 * After this no token of a login is left, however long `auth.token_lifetime_s` was when it was made; a day more, as a login
 * begins a little before its token does.
 */
const FAMILY_LIFE_MS = Math.max(MAX_TOKEN_LIFETIME_S * 1000, REFRESH_LIMIT_MS) + DAY_MS;
/** Of a program that logs in each minute only the newest are told. */
const MOST_TOLD = 1000;

/** When the last token ends that a login can have had, which began then. */
export function familyEnd(began: Date): Date {
  return new Date(began.getTime() + FAMILY_LIFE_MS);
}

export class SessionService {
  readonly #db: Database;
  /** When logins were used last as far as their rows tell, ms, by their ids. */
  readonly #lastUsed = new Map<string, number>();

  constructor(db: Database) {
    this.#db = db;
  }

  /** Somebody gave the password. @param from the address, and what they used */
  async begin(login: Login, user: UserRow, from: { address: string; client: string }): Promise<void> {
    const row: SessionRow = {
      id: login.family,
      user_id: user.id,
      created: new Date(wholeSecond(login.origIat)).toISOString(),
      expires_on: login.expiresOn.toISOString(),
      last_used: new Date().toISOString(),
      ...from,
    };
    await this.#db
      .insertInto('sessions')
      .values(row)
      .onConflict(conflict => conflict.doNothing())
      .execute();
  }

  async prolong(family: string, expiresOn: Date): Promise<void> {
    const expires_on = expiresOn.toISOString();
    await this.#db
      .updateTable('sessions')
      .set({ expires_on })
      .where('id', '=', family)
      // a token from before may last longer
      .where('expires_on', '<', expires_on)
      .execute();
  }

  /** A token of it was used, and counts. */
  async use(login: Login, user: UserRow): Promise<void> {
    const now = new Date();
    const told = this.#lastUsed.get(login.family);
    if (told !== undefined && Math.abs(now.getTime() - told) < LAST_USED_STEP_MS) return;
    const lastUsed = await this.#noteUse(login, user, now);
    if (this.#lastUsed.size >= MAX_REMEMBERED) this.#lastUsed.clear();
    this.#lastUsed.set(login.family, lastUsed.getTime());
  }

  /** @returns when it was used last, as its row tells now */
  async #noteUse(login: Login, user: UserRow, now: Date): Promise<Date> {
    const row = await this.#db
      .selectFrom('sessions')
      .select('last_used')
      .where('id', '=', login.family)
      .executeTakeFirst();
    if (row === undefined) {
      await this.begin(login, user, { address: '', client: '' });
      return now;
    }
    const before = new Date(row.last_used);
    if (now.getTime() - before.getTime() < LAST_USED_STEP_MS) return before;
    const last_used = now.toISOString();
    await this.#db.updateTable('sessions').set({ last_used }).where('id', '=', login.family).execute();
    return now;
  }

  /** @throws token_revoked when the login was ended, alone or with all others of the user. */
  async check({ jti, family, origIat }: TokenClaims, user: UserRow): Promise<void> {
    if (isEnded(origIat, user)) throw new VirtkeepError('token_revoked');
    const revoked = await this.#db
      .selectFrom('revoked_sessions')
      .select('jti')
      .where('jti', 'in', [jti, family])
      .limit(1)
      .executeTakeFirst();
    if (revoked !== undefined) throw new VirtkeepError('token_revoked');
  }

  /** The logins of a user that count, the newest first. */
  async list(user: UserRow, viewer: Principal): Promise<SessionRecord[]> {
    const rows = await this.#counting(user).orderBy('created', 'desc').limit(MOST_TOLD).execute();
    return rows
      .filter(({ created }) => !isEnded(new Date(created), user))
      .map(({ user_id: _, ...row }) => ({
        ...row,
        user: { id: user.number, username: user.username },
        current: viewer.kind === 'session' && viewer.family === row.id,
      }));
  }

  /** Ends one, with all tokens refreshed from it. @throws session_not_found, also for one of somebody else. */
  async end(id: string, user: UserRow): Promise<void> {
    const row = await this.#counting(user).where('id', '=', id).executeTakeFirst();
    if (row === undefined || isEnded(new Date(row.created), user))
      throw new VirtkeepError('session_not_found', { id });
    await this.revoke(id, familyEnd(new Date(row.created)));
  }

  /** @param until no token of it lasts longer */
  revoke(family: string, until: Date): Promise<void> {
    return this.#db.transaction().execute(async trx => {
      await trx
        .insertInto('revoked_sessions')
        .values({ jti: family, expires_on: until.toISOString() })
        .onConflict(conflict => conflict.doNothing())
        .execute();
      await trx.deleteFrom('sessions').where('id', '=', family).execute();
    });
  }

  /** Forgets what has ended by itself. */
  async prune(now: Date): Promise<void> {
    for (const table of ['sessions', 'revoked_sessions'] as const)
      await this.#db.deleteFrom(table).where('expires_on', '<', now.toISOString()).execute();
  }

  /** But for those that ended with all others of the user. One that is ended while it is used may get its row back. */
  #counting(user: UserRow) {
    return this.#db
      .selectFrom('sessions')
      .selectAll()
      .where('user_id', '=', user.id)
      .where('expires_on', '>', new Date().toISOString())
      .where('id', 'not in', this.#db.selectFrom('revoked_sessions').select('jti'));
  }
}

/** With all logins of before: another password, another role, or on request. */
function isEnded(began: Date, user: UserRow): boolean {
  return user.enabled !== 1 || wholeSecond(began) < wholeSecond(new Date(user.sessions_since));
}

/** Tokens tell whole seconds. */
function wholeSecond(time: Date): number {
  return Math.floor(time.getTime() / 1000) * 1000;
}
