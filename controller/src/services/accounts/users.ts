/** Users, their roles and passwords. The last enabled administrator cannot be lost. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Role } from '@virtkeep/shared/permissions';
import { checkPasswordRules, hashPassword } from '../../auth/passwords.ts';
import { isUniqueViolation } from '../../store/dialect.ts';
import { nextUserNumber } from '../../store/number-users.ts';
import type { Database, UserRow } from '../../store/schema.ts';

export interface UserRecord {
  /** Their number. */
  id: number;
  username: string;
  role: Role;
  enabled: boolean;
  description: string;
  created: string;
  modified: string;
  last_login: string | null;
}

export interface NewUser {
  username: string;
  password: string;
  role: Role;
  description?: string;
}

export interface UserPatch {
  role?: Role;
  enabled?: boolean;
  description?: string;
  password?: string;
  /** Ends all logins of before, whatever else is changed. */
  end_sessions?: boolean;
  /** Ends all integration tokens. */
  end_tokens?: boolean;
}

export class UserService {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** @throws invalid_field for a weak password; name_taken. */
  async create(user: NewUser): Promise<UserRecord> {
    checkPasswordRules(user.password, user.username);
    const now = new Date().toISOString();
    const row: Omit<UserRow, 'number'> = {
      id: newId(),
      username: user.username,
      role: user.role,
      password_hash: await hashPassword(user.password),
      enabled: 1,
      sessions_since: now,
      description: user.description ?? '',
      created: now,
      modified: now,
      last_login: null,
    };
    try {
      return userRecord(await insertNumbered(this.#db, row));
    } catch (error) {
      if (isUniqueViolation(error)) {
        throw new VirtkeepError('name_taken', { name: user.username, field: 'username' });
      }
      throw error;
    }
  }

  async list(): Promise<UserRecord[]> {
    const rows = await this.#db.selectFrom('users').selectAll().orderBy('username').execute();
    return rows.map(userRecord);
  }

  /** @throws user_not_found. */
  async get(number: number): Promise<UserRecord> {
    return userRecord(await this.row(number));
  }

  /** @throws user_not_found. */
  async row(number: number): Promise<UserRow> {
    const row = await this.findByNumber(number);
    if (row === undefined) throw new VirtkeepError('user_not_found', { id: number });
    return row;
  }

  findByNumber(number: number): Promise<UserRow | undefined> {
    return this.#db.selectFrom('users').selectAll().where('number', '=', number).executeTakeFirst();
  }

  find(id: string): Promise<UserRow | undefined> {
    return this.#db.selectFrom('users').selectAll().where('id', '=', id).executeTakeFirst();
  }

  findByName(username: string): Promise<UserRow | undefined> {
    return this.#db.selectFrom('users').selectAll().where('username', '=', username).executeTakeFirst();
  }

  /**
   * Changes a user. A new password, another role or disabling ends all logins of before.
   * @throws user_not_found; invalid_field; last_administrator.
   */
  async change(number: number, patch: UserPatch): Promise<UserRecord> {
    const { id, username } = await this.row(number);
    if (patch.password !== undefined) checkPasswordRules(patch.password, username);
    const hash = patch.password === undefined ? undefined : await hashPassword(patch.password);
    return this.#db.transaction().execute(async trx => {
      // a hash takes a while, in which somebody else may have changed the user
      const before = await trx.selectFrom('users').selectAll().where('id', '=', id).executeTakeFirst();
      if (before === undefined) throw new VirtkeepError('user_not_found', { id: String(number) });
      const now = new Date();
      const endsSessions =
        patch.end_sessions === true ||
        patch.password !== undefined ||
        patch.enabled === false ||
        (patch.role !== undefined && patch.role !== before.role);
      const columns = {
        role: patch.role ?? before.role,
        enabled: patch.enabled === undefined ? before.enabled : Number(patch.enabled),
        description: patch.description ?? before.description,
        password_hash: hash ?? before.password_hash,
        sessions_since: endsSessions ? await endLogins(trx, before, now) : before.sessions_since,
        modified: now.toISOString(),
      };
      await trx.updateTable('users').set(columns).where('id', '=', id).execute();
      if (patch.end_tokens === true) await trx.deleteFrom('tokens').where('user_id', '=', id).execute();
      await requireAdministrator(trx);
      return userRecord({ ...before, ...columns });
    });
  }

  /**
   * Removes a user with their logins, tokens and idempotency keys. What they did, and the scheduled tasks that they made, keep their name;
   * a new user of the same name is another one.
   * @param by who asks for it
   * @throws user_not_found; own_user; last_administrator.
   */
  async remove(number: number, by: Pick<UserRow, 'id'>): Promise<void> {
    const { id, username } = await this.row(number);
    if (id === by.id) throw new VirtkeepError('own_user');
    await this.#db.transaction().execute(async trx => {
      for (const table of ['sessions', 'tokens', 'idempotency'] as const)
        await trx.deleteFrom(table).where('user_id', '=', id).execute();
      const { numDeletedRows } = await trx.deleteFrom('users').where('id', '=', id).executeTakeFirst();
      if (Number(numDeletedRows) === 0) throw new VirtkeepError('user_not_found', { id: String(number) });
      const removed = new Date().toISOString();
      await trx.insertInto('removed_users').values({ id, number, username, removed }).execute();
      await requireAdministrator(trx);
    });
  }

  /** Number of integration tokens that a user has. */
  async tokens(id: string): Promise<number> {
    const row = await this.#db
      .selectFrom('tokens')
      .select(({ fn }) => fn.countAll<number>().as('number'))
      .where('user_id', '=', id)
      .executeTakeFirstOrThrow();
    return Number(row.number);
  }

  async loggedIn(id: string): Promise<void> {
    const last_login = new Date().toISOString();
    await this.#db.updateTable('users').set({ last_login }).where('id', '=', id).execute();
  }

  async isEmpty(): Promise<boolean> {
    return (await this.#db.selectFrom('users').select('id').limit(1).executeTakeFirst()) === undefined;
  }
}

function insertNumbered(db: Database, row: Omit<UserRow, 'number'>): Promise<UserRow> {
  return db.transaction().execute(async trx => {
    const numbered = { ...row, number: await nextUserNumber(trx) };
    await trx.insertInto('users').values(numbered).execute();
    return numbered;
  });
}

/** Tokens tell whole seconds: what was issued in this one is of before, what is issued from now on counts as of the next. */
function nextSecond(now: Date): Date {
  return new Date((Math.floor(now.getTime() / 1000) + 1) * 1000);
}

/**
 * Each by itself, too: one that a controller took whose clock was ahead is of after the time that is set now.
 * @returns before which logins count no more; it never goes back
 */
async function endLogins(db: Database, { id, sessions_since }: UserRow, now: Date): Promise<string> {
  const logins = db.selectFrom('sessions').select(['id', 'expires_on']).where('user_id', '=', id);
  await db
    .insertInto('revoked_sessions')
    .columns(['jti', 'expires_on'])
    .expression(logins)
    .onConflict(conflict => conflict.doNothing())
    .execute();
  await db.deleteFrom('sessions').where('user_id', '=', id).execute();
  const since = nextSecond(now).toISOString();
  return since > sessions_since ? since : sessions_since;
}

async function requireAdministrator(db: Database): Promise<void> {
  const row = await db
    .selectFrom('users')
    .select('id')
    .where('role', '=', 'administrator')
    .where('enabled', '=', 1)
    .limit(1)
    .executeTakeFirst();
  if (row === undefined) throw new VirtkeepError('last_administrator');
}

function userRecord(row: UserRow): UserRecord {
  return {
    id: row.number,
    username: row.username,
    role: row.role as Role,
    enabled: row.enabled === 1,
    description: row.description,
    created: row.created,
    modified: row.modified,
    last_login: row.last_login,
  };
}
