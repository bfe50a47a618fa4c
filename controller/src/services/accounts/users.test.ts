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

test('a user who is disabled while they choose a password stays so', async () => {
  const own = users.change(carol.id, { password: 'another-Passw0rd' });
  await users.change(carol.id, { enabled: false, role: 'auditor' });
  await own;
  expect(await users.row(carol.id)).toMatchObject({ enabled: 0, role: 'auditor' });
});

test('a user who is removed while they choose a password is not there any more, and cannot be removed again', async () => {
  const own = users.change(carol.id, { password: 'another-Passw0rd' });
  const by = { id: newId() };
  await users.remove(carol.id, by);
  await expect(own).rejects.toMatchObject({ msgKey: 'user_not_found' });
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
