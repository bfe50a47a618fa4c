/**
 * The one place where a password is compared. Each comparison is counted and slowed down, whatever it is for, and does
 * the same work and the same writes for names that exist and names that do not.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { LoginThrottle } from '../../auth/login-throttle.ts';
import { verifyPassword } from '../../auth/passwords.ts';
import type { Principal } from '../../auth/principal.ts';
import type { Database, UserRow } from '../../store/schema.ts';
import type { UserService } from './users.ts';

export class PasswordChecks {
  readonly #users: UserService;
  readonly #throttle: LoginThrottle;

  constructor(db: Database, users: UserService) {
    this.#users = users;
    this.#throttle = new LoginThrottle(db);
  }

  /** Who this is. @throws login_failed; too_many_logins. */
  async authenticate(username: string, password: string, address: string): Promise<UserRow> {
    const user = await this.#check(username.toLowerCase(), password, address);
    if (user === undefined) throw new VirtkeepError('login_failed');
    return user;
  }

  /**
   * Somebody who is logged in gives the own password again: a stolen session alone must not be enough.
   * @param field of the request that holds the password
   * @throws missing_field, invalid_field naming that field; too_many_logins.
   */
  async confirm(
    viewer: Principal,
    password: string | undefined,
    field: string,
    address: string,
  ): Promise<void> {
    if (password === undefined) throw new VirtkeepError('missing_field', { field });
    const user = await this.#check(viewer.username, password, address);
    if (user?.id !== viewer.id) throw new VirtkeepError('invalid_field', { field, reason: 'is wrong' });
  }

  /** Forgets failures and logins of long ago. */
  prune(now: Date): Promise<void> {
    return this.#throttle.prune(now);
  }

  async #check(username: string, password: string, address: string): Promise<UserRow | undefined> {
    await this.#throttle.attempt(username, address);
    const user = await this.#users.findByName(username);
    const matches = await verifyPassword(user?.password_hash, password);
    if (user === undefined || !matches || user.enabled !== 1) return undefined;
    await this.#throttle.succeeded(username, address);
    return user;
  }
}
