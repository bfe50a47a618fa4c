import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { UserService } from './users.ts';

const PASSWORD = 'a-Passw0rd-of-somebody';

let db: Database;
let users: UserService;
let carol: { id: number; uuid: string };

beforeEach(async () => {
  db = await openTestDatabase();
  users = new UserService(db);
  const admin = { username: 'admin', password: PASSWORD, role: 'administrator' as const };
  await users.create(admin);
  const { id } = await users.create({ ...admin, username: 'carol', role: 'operator' });
  carol = { id, uuid: (await users.row(id)).id };
});

afterEach(() => db.destroy());

/**
 * Carol chooses a password, and something else happens when that was hashed and before it is written.
 * @returns the answer to her, or the error
 */
async function choosing(meanwhile: () => Promise<unknown>): Promise<unknown> {
  const hashed = Promise.withResolvers<void>();
  const done = Promise.withResolvers<void>();
  const transaction = () => ({
    execute: async (work: never) => {
      hashed.resolve();
      await done.promise;
      return db.transaction().execute(work);
    },
  });
  const held = new Proxy(db, {
    get: (target, key) => (key === 'transaction' ? transaction : Reflect.get(target, key).bind(target)),
  });
  const own = new UserService(held)
    .change(carol.id, { password: 'another-Passw0rd' })
    .catch((error: unknown) => error);
  await Promise.race([hashed.promise, own]);
  await meanwhile().finally(done.resolve);
  return own;
}

test('a user who is disabled while they choose a password stays so', async () => {
  expect(await choosing(() => users.change(carol.id, { enabled: false, role: 'auditor' }))).toMatchObject({
    role: 'auditor',
  });
  expect(await users.row(carol.id)).toMatchObject({ enabled: 0, role: 'auditor' });
});

test('a user who is removed while they choose a password is not there any more, and cannot be removed again', async () => {
  const by = { id: newId() };
  expect(await choosing(() => users.remove(carol.id, by))).toMatchObject({ msgKey: 'user_not_found' });
  await expect(users.remove(carol.id, by)).rejects.toMatchObject({ msgKey: 'user_not_found' });
});

test('a login of a controller whose clock was ahead ends with the others', async () => {
  const ahead = new Date(Date.now() + 90_000).toISOString();
  const row = { id: newId(), user_id: carol.uuid, address: '', client: '', last_used: ahead };
  await db
    .insertInto('sessions')
    .values({ ...row, created: ahead, expires_on: ahead })
    .execute();
  await users.change(carol.id, { end_sessions: true });
  const ended = await db.selectFrom('revoked_sessions').selectAll().execute();
  expect(ended).toEqual([{ jti: row.id, expires_on: ahead }]);
});

test('the time before which logins count no more never goes back', async () => {
  const ahead = new Date(Date.now() + 90_000).toISOString();
  await db.updateTable('users').set({ sessions_since: ahead }).where('id', '=', carol.uuid).execute();
  await users.change(carol.id, { end_sessions: true });
  expect((await users.row(carol.id)).sessions_since).toBe(ahead);
});
