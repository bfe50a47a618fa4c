import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { hasKey } from '@virtkeep/shared/errors';
import { ROLES, roleAllows } from '@virtkeep/shared/permissions';
import type { Database } from '../store/schema.ts';
import { makeTestDatabase, openTestDatabase } from '../store/test-database.ts';
import { LoginThrottle } from './login-throttle.ts';
import { checkPasswordRules, hashPassword, verifyPassword } from './passwords.ts';

let db: Database;

beforeEach(async () => {
  db = await openTestDatabase();
});

afterEach(() => db.destroy());

/** Seconds to wait, or 0 when the attempt was let through. */
async function attempt(throttle: LoginThrottle, user: string, address: string, at: number): Promise<number> {
  try {
    await throttle.attempt(user, address, new Date(at));
    return 0;
  } catch (error) {
    if (hasKey(error, 'too_many_logins')) return Number(error.params.seconds);
    throw error;
  }
}

describe('the login throttle', () => {
  test('lets five failures pass, then doubles the wait, then forgets', async () => {
    const throttle = new LoginThrottle(db);
    const start = Date.UTC(2026, 0, 1);
    for (let count = 0; count < 5; count += 1)
      expect(await attempt(throttle, 'a', '10.0.0.1', start)).toBe(0);
    expect(await attempt(throttle, 'a', '10.0.0.1', start)).toBe(1);
    expect(await attempt(throttle, 'a', '10.0.0.1', start + 1000)).toBe(0);
    expect(await attempt(throttle, 'a', '10.0.0.1', start + 1000)).toBe(2);
    expect(await attempt(throttle, 'a', '10.0.0.2', start + 1000)).toBe(0);
    expect(await attempt(throttle, 'a', '10.0.0.1', start + 20 * 60_000)).toBe(0);
  });

  test('many users from one address, and one user from many, are slowed too', async () => {
    const throttle = new LoginThrottle(db);
    const start = Date.UTC(2026, 0, 1);
    for (let user = 0; user < 30; user += 1) await attempt(throttle, `user${user}`, '10.0.0.9', start);
    expect(await attempt(throttle, 'fresh', '10.0.0.9', start)).toBeGreaterThan(0);
    for (let host = 0; host < 50; host += 1) await attempt(throttle, 'target', `10.1.0.${host}`, start);
    expect(await attempt(throttle, 'target', '10.2.0.1', start)).toBeGreaterThan(0);
  });

  test('parallel attempts are counted one by one', async () => {
    const throttle = new LoginThrottle(db);
    const at = Date.UTC(2026, 0, 1);
    const waits = (username: string, count: number, address: (index: number) => string) =>
      Promise.all(
        Array.from({ length: count }, (_, index) => attempt(throttle, username, address(index), at)),
      );
    const passed = (await waits('a', 50, () => '10.0.0.1')).filter(wait => wait === 0);
    expect(passed).toHaveLength(5);
    expect(await waits('b', 50, index => `10.1.0.${index}`)).toEqual(Array(50).fill(0));
    expect(await attempt(throttle, 'b', '10.2.0.1', at)).toBeGreaterThan(0);
  });

  test('what was counted stands after a restart', async () => {
    const { open, release } = await makeTestDatabase();
    const before = await open();
    const at = Date.UTC(2026, 0, 1);
    for (let count = 0; count < 5; count += 1) await attempt(new LoginThrottle(before), 'a', '10.0.0.1', at);
    await before.destroy();
    const after = await open();
    const throttle = new LoginThrottle(after);
    await throttle.prune(new Date(at));
    expect(await attempt(throttle, 'a', '10.0.0.1', at)).toBeGreaterThan(0);
    await after.destroy();
    await release();
  });

  test('where a user logged in lately, that pair is slowed down alone, and not for long', async () => {
    const throttle = new LoginThrottle(db);
    const start = Date.UTC(2026, 0, 1);
    await throttle.attempt('a', '10.0.0.1', new Date(start));
    await throttle.succeeded('a', '10.0.0.1', new Date(start));
    for (let count = 0; count < 60; count += 1) {
      await attempt(throttle, 'a', `10.1.0.${count}`, start);
      await attempt(throttle, `user${count}`, '10.0.0.1', start);
    }
    let at = start;
    for (let count = 0; count < 30; count += 1) {
      const waitS = await attempt(throttle, 'a', '10.0.0.1', at);
      expect(waitS).toBeLessThanOrEqual(10);
      at += waitS * 1000;
    }
    const waits = [
      await attempt(throttle, 'a', '10.0.0.1', at),
      await attempt(throttle, 'a', '10.0.0.1', at),
    ];
    expect(Math.max(...waits)).toBeGreaterThan(0);
  });

  test('who goes on guessing where the user logs in waits a minute for each in the end', async () => {
    const throttle = new LoginThrottle(db);
    const start = Date.UTC(2026, 0, 1);
    await throttle.succeeded('a', '10.0.0.1', new Date(start));
    let at = start;
    let waitS = 0;
    for (let count = 0; count < 60; count += 1) {
      waitS = await attempt(throttle, 'a', '10.0.0.1', at);
      at += waitS * 1000;
    }
    expect(Math.max(waitS, await attempt(throttle, 'a', '10.0.0.1', at))).toBe(60);
  });

  test('a clock that was ahead and was put right keeps nobody out', async () => {
    const throttle = new LoginThrottle(db);
    const now = Date.UTC(2026, 0, 1);
    const ahead = now + 365 * 86_400_000;
    for (let count = 0; count < 5; count += 1) await attempt(throttle, 'a', '10.0.0.1', ahead);
    expect(await attempt(throttle, 'a', '10.0.0.1', ahead)).toBe(1);
    const waits = [];
    for (let count = 0; count < 6; count += 1) waits.push(await attempt(throttle, 'a', '10.0.0.1', now));
    expect(waits).toEqual([0, 0, 0, 0, 0, 1]);
    for (let count = 0; count < 5; count += 1) await attempt(throttle, 'b', '10.0.0.1', ahead);
    await throttle.prune(new Date(now));
    expect((await db.selectFrom('login_failures').select('last_failure').execute()).length).toBe(2);
  });

  test('a right password starts the pair afresh', async () => {
    const throttle = new LoginThrottle(db);
    for (let count = 0; count < 4; count += 1) await throttle.attempt('a', '10.0.0.1');
    await throttle.succeeded('a', '10.0.0.1');
    for (let count = 0; count < 5; count += 1) await throttle.attempt('a', '10.0.0.1');
  });
});

describe('passwords', () => {
  test('verify against their hash only', async () => {
    const stored = await hashPassword('right password');
    expect(await verifyPassword(stored, 'right password')).toBe(true);
    expect(await verifyPassword(stored, 'wrong password')).toBe(false);
    expect(await verifyPassword(undefined, 'right password')).toBe(false);
  });

  test('have rules', () => {
    expect(() => checkPasswordRules('tooshort', 'a-user')).toThrow('at least');
    expect(() => checkPasswordRules('long but A-USER', 'a-user')).toThrow('user name');
    expect(() => checkPasswordRules('abababababab', 'a-user')).toThrow('different');
    checkPasswordRules('a sound password', 'a-user');
  });
});

test('only administrators manage users, and auditors change nothing', () => {
  expect(ROLES.filter(role => roleAllows(role, 'user.manage'))).toEqual(['administrator']);
  expect(ROLES.filter(role => roleAllows(role, 'audit.read'))).toEqual(['administrator', 'auditor']);
  for (const permission of ['backup.create', 'domain.power', 'vdisk.attach', 'guest.execute'] as const) {
    expect(roleAllows('auditor', permission)).toBe(false);
  }
  expect(roleAllows('backup_service', 'vdisk.attach')).toBe(true);
  expect(roleAllows('backup_service', 'backup.restore')).toBe(false);
});
