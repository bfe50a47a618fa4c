/**
 * Logins and tokens. A login token is valid until its end unless its user was changed or it was revoked; a long-lived
 * integration token is valid while its row stands. The text of a token is shown once and kept nowhere.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { type Role, roleAllows } from '@virtkeep/shared/permissions';
import type { TokenClaims, TokenSigner } from '../../auth/jwt.ts';
import type { Principal } from '../../auth/principal.ts';
import { isUniqueViolation } from '../../store/dialect.ts';
import type { Database, TokenRow, UserRow } from '../../store/schema.ts';
import type { PasswordChecks } from './password-checks.ts';
import { familyEnd, REFRESH_LIMIT_MS, type SessionService } from './sessions.ts';
import type { UserService } from './users.ts';

export interface IssuedToken {
  token: string;
  expires_on: string;
}

export interface TokenRecord {
  id: string;
  name: string;
  user: { id: number; username: string };
  created: string;
  expires_on: string;
  last_used: string | null;
}

/** `last_used` is for people: it is not written at each request. */
const LAST_USED_STEP_MS = 60_000;
const DAY_MS = 86_400_000;

export interface TokenServiceDependencies {
  db: Database;
  users: UserService;
  signer: TokenSigner;
  passwords: PasswordChecks;
  sessions: SessionService;
  lifetimeMs: number;
}

export class TokenService {
  readonly #dependencies: TokenServiceDependencies;

  constructor(dependencies: TokenServiceDependencies) {
    this.#dependencies = dependencies;
  }

  /** @param client the browser or program, for people. @throws login_failed; too_many_logins. */
  async login(username: string, password: string, address: string, client = ''): Promise<IssuedToken> {
    // of the time before the password was read: whoever changes it meanwhile ends this login, too
    const began = new Date();
    const user = await this.#dependencies.passwords.authenticate(username, password, address);
    await this.#dependencies.users.loggedIn(user.id);
    const since = new Date(user.sessions_since);
    const jti = newId();
    const login = { jti, family: jti, origIat: since > began ? since : began };
    const end = new Date(Date.now() + this.#dependencies.lifetimeMs);
    const issued = await this.#issue(user, login, end);
    const { family, origIat } = login;
    await this.#dependencies.sessions.begin({ family, origIat, expiresOn: end }, user, { address, client });
    return issued;
  }

  /** A new login token for a valid one. @throws the errors of `principal`; token_invalid for integration tokens. */
  async refresh(token: string): Promise<IssuedToken> {
    const claims = await this.#dependencies.signer.verify(token);
    const { user } = await this.#check(claims);
    if (claims.integration) throw new VirtkeepError('token_invalid');
    const end = Math.min(
      Date.now() + this.#dependencies.lifetimeMs,
      claims.origIat.getTime() + REFRESH_LIMIT_MS,
    );
    if (end <= Date.now()) throw new VirtkeepError('token_expired');
    const { family, origIat } = claims;
    const issued = await this.#issue(user, { jti: newId(), family, origIat }, new Date(end));
    await this.#dependencies.sessions.prolong(family, new Date(end));
    return issued;
  }

  /** Who a token stands for. @throws token_expired, token_invalid, token_revoked. */
  async principal(token: string): Promise<Principal> {
    const claims = await this.#dependencies.signer.verify(token);
    const { user, row } = await this.#check(claims);
    // for people only: a token counts also where it cannot be written that it was used
    await (row === undefined ? this.#dependencies.sessions.use(claims, user) : this.#touch(row)).catch(
      () => {},
    );
    return {
      id: user.id,
      number: user.number,
      username: user.username,
      role: user.role as Role,
      jti: claims.jti,
      kind: claims.integration ? 'integration' : 'session',
      family: claims.family,
      expiresOn: claims.expiresOn,
      familyEndsOn: familyEnd(claims.origIat),
    };
  }

  /** Makes a long-lived token of the user with this number. @throws name_taken; user_not_found. */
  async create(userNumber: number, name: string, days: number): Promise<TokenRecord & { token: string }> {
    const user = await this.#dependencies.users.row(userNumber);
    const now = new Date();
    // Tokens carry whole seconds; the record says the same.
    const expiresOn = new Date(Math.floor(now.getTime() / 1000) * 1000 + days * DAY_MS);
    const row: TokenRow = {
      id: newId(),
      user_id: user.id,
      name,
      created: now.toISOString(),
      expires_on: expiresOn.toISOString(),
      last_used: null,
    };
    try {
      await this.#dependencies.db.insertInto('tokens').values(row).execute();
    } catch (error) {
      if (isUniqueViolation(error)) throw new VirtkeepError('name_taken', { name, field: 'name' });
      throw error;
    }
    const token = await this.#dependencies.signer.sign({
      userId: user.number,
      username: user.username,
      jti: row.id,
      family: row.id,
      origIat: now,
      expiresOn,
      integration: true,
    });
    return { ...tokenRecord(row, user), token };
  }

  /** The viewer's integration tokens; everybody's for those who manage tokens. */
  async list(viewer: Principal): Promise<TokenRecord[]> {
    let query = this.#dependencies.db
      .selectFrom('tokens')
      .innerJoin('users', 'users.id', 'tokens.user_id')
      .selectAll('tokens')
      .select(['users.username', 'users.number']);
    if (!roleAllows(viewer.role, 'token.manage')) query = query.where('tokens.user_id', '=', viewer.id);
    const rows = await query.orderBy('tokens.created').execute();
    return rows.map(row => tokenRecord(row, row));
  }

  /**
   * Revokes an integration token, or, when `id` is that of the viewer's own login, all tokens refreshed from that login.
   * @throws token_not_found, also for tokens of others that the viewer may not manage.
   */
  async remove(id: string, viewer: Principal): Promise<void> {
    if (viewer.kind === 'session' && (id === viewer.jti || id === viewer.family)) {
      return this.#dependencies.sessions.revoke(viewer.family, viewer.familyEndsOn);
    }
    let query = this.#dependencies.db.deleteFrom('tokens').where('id', '=', id);
    if (!roleAllows(viewer.role, 'token.manage')) query = query.where('user_id', '=', viewer.id);
    const result = await query.executeTakeFirst();
    if (Number(result.numDeletedRows) === 0) throw new VirtkeepError('token_not_found', { id });
  }

  /** Forgets what has ended by itself. */
  async prune(now: Date): Promise<void> {
    await this.#dependencies.sessions.prune(now);
    await this.#dependencies.passwords.prune(now);
  }

  async #issue(
    user: UserRow,
    login: Pick<TokenClaims, 'jti' | 'family' | 'origIat'>,
    end: Date,
  ): Promise<IssuedToken> {
    const expiresOn = new Date(Math.floor(end.getTime() / 1000) * 1000);
    const token = await this.#dependencies.signer.sign({
      userId: user.number,
      username: user.username,
      ...login,
      expiresOn,
      integration: false,
    });
    return { token, expires_on: expiresOn.toISOString() };
  }

  async #check(claims: TokenClaims): Promise<{ user: UserRow; row: TokenRow | undefined }> {
    const user = await this.#userOf(claims);
    if (user === undefined || user.enabled !== 1) throw new VirtkeepError('token_revoked');
    if (!claims.integration) {
      await this.#dependencies.sessions.check(claims, user);
      return { user, row: undefined };
    }
    const row = await this.#dependencies.db
      .selectFrom('tokens')
      .selectAll()
      .where('id', '=', claims.jti)
      .where('user_id', '=', user.id)
      .executeTakeFirst();
    if (row === undefined) throw new VirtkeepError('token_revoked');
    return { user, row };
  }

  /** Tokens of before numbers name the user by UUID. */
  #userOf({ userId }: TokenClaims): Promise<UserRow | undefined> {
    return typeof userId === 'number'
      ? this.#dependencies.users.findByNumber(userId)
      : this.#dependencies.users.find(userId);
  }

  async #touch(row: TokenRow): Promise<void> {
    const now = new Date();
    if (row.last_used !== null && now.getTime() - new Date(row.last_used).getTime() < LAST_USED_STEP_MS)
      return;
    await this.#dependencies.db
      .updateTable('tokens')
      .set({ last_used: now.toISOString() })
      .where('id', '=', row.id)
      .execute();
  }
}

function tokenRecord(row: TokenRow, user: Pick<UserRow, 'number' | 'username'>): TokenRecord {
  return {
    id: row.id,
    name: row.name,
    user: { id: user.number, username: user.username },
    created: row.created,
    expires_on: row.expires_on,
    last_used: row.last_used,
  };
}
