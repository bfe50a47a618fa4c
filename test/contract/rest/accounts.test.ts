/** Attacks on accounts: tokens that make tokens, guessed passwords, logins that outlive their end. */
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { decodeJwt } from 'jose';
import { sql } from 'kysely';
import { clockStopped } from '../../../controller/src/auth/stopped-clock.ts';
import { makeRestApp, PASSWORD, type RestApp } from './app.ts';

let rest: RestApp;

beforeEach(async () => {
  rest = await makeRestApp();
});
afterEach(() => rest.close());

const DAY_MS = 86_400_000;

/** Logs in from an address. */
async function login(username: string, password: string, remoteAddress = '10.0.0.1') {
  const response = await rest.app.inject({
    method: 'POST',
    url: '/auth/',
    remoteAddress,
    payload: { username, password },
  });
  return { status: response.statusCode, body: response.json() };
}

async function session(username = 'the-operator') {
  const { body } = await login(username, PASSWORD);
  return { header: `jwt ${body.token as string}` };
}

const keyOf = ({ body }: { body: { errors: { msg_key: string }[] } }) => body.errors[0]!.msg_key;

describe('an integration token', () => {
  test('issues no other one, whoever has it, whatever it is sent with', async () => {
    for (const as of ['operator', 'administrator'] as const) {
      for (const body of [{ name: 'heir' }, { name: 'heir', password: PASSWORD }]) {
        const answer = await rest.call('POST', '/api/tokens/', { as, body });
        expect([answer.status, keyOf(answer)]).toEqual([403, 'session_required']);
      }
    }
  });

  test('is issued to a session that gives the password again, for 90 days, for a year at most', async () => {
    const as = await session();
    const issue = (body: object) => rest.call('POST', '/api/tokens/', { as, body });
    expect(keyOf(await issue({ name: 'without' }))).toBe('missing_field');
    const wrong = await issue({ name: 'wrong', password: 'not the password' });
    expect([wrong.status, wrong.body.errors[0].field]).toEqual([400, 'password']);
    expect((await issue({ name: 'long', password: PASSWORD, days: 366 })).status).toBe(400);
    const made = await issue({ name: 'nightly', password: PASSWORD });
    const lifeMs = Date.parse(made.body.expires_on) - Date.parse(made.body.created);
    expect(Math.round(lifeMs / DAY_MS)).toBe(90);
    expect((await issue({ name: 'year', password: PASSWORD, days: 365 })).status).toBe(200);
  });

  test('of an administrator makes no user, and gives nobody a password, a role or a way back in', async () => {
    const body = { username: 'accomplice', password: 'a long password', role: 'administrator' };
    const made = await rest.call('POST', '/api/users/', { body });
    expect([made.status, keyOf(made)]).toEqual([403, 'session_required']);
    const patches = [
      { password: 'the password of a thief' },
      { password: 'the password of a thief', old_password: PASSWORD },
      { role: 'administrator' },
      { enabled: true },
      { end_sessions: true },
      { end_tokens: true },
    ];
    for (const id of [rest.userNumbers.operator, rest.userNumbers.administrator]) {
      for (const patch of patches) {
        const changed = await rest.call('PUT', `/api/users/${id}/`, { body: patch });
        expect([changed.status, keyOf(changed)]).toEqual([403, 'session_required']);
      }
    }
    expect((await login('accomplice', body.password)).status).toBe(401);
    expect((await login('the-operator', PASSWORD)).status).toBe(200);
    const list = await rest.call('GET', '/api/users/');
    expect(list.status).toBe(200);
    expect(list.text).not.toContain('accomplice');
  });

  test('may last longer where the settings say so', async () => {
    await rest.close();
    rest = await makeRestApp({ auth: { integration_token_max_days: 3650 } });
    const body = { name: 'long', password: PASSWORD, days: 3650 };
    expect((await rest.call('POST', '/api/tokens/', { as: await session(), body })).status).toBe(200);
  });
});

describe('passwords', () => {
  test(
    'are not guessed through a stolen session: neither as the old one nor for a token',
    clockStopped(async () => {
      const as = await session();
      const guesses = {
        old: () =>
          rest.call('PUT', `/api/users/${rest.userNumbers.operator}/`, {
            as,
            body: { password: 'a new password', old_password: 'a wrong guess' },
          }),
        token: () =>
          rest.call('POST', '/api/tokens/', { as, body: { name: 'x', password: 'a wrong guess' } }),
      };
      for (let count = 0; count < 3; count += 1) {
        expect((await guesses.old()).status).toBe(400);
        expect((await guesses.token()).status).toBe(400);
        if (count === 1) expect((await guesses.old()).status).toBe(400);
        if (count === 1) break;
      }
      const refused = [await guesses.old(), await guesses.token()];
      expect(refused.map(answer => [answer.status, keyOf(answer)])).toEqual([
        [429, 'too_many_logins'],
        [429, 'too_many_logins'],
      ]);
    }),
  );

  test(
    '50 parallel guesses of one user from 50 places count 50',
    clockStopped(async () => {
      const guesses = Array.from({ length: 50 }, (_, host) =>
        login('the-auditor', 'a wrong guess', `10.1.0.${host}`),
      );
      expect((await Promise.all(guesses)).map(({ status }) => status)).toEqual(Array(50).fill(401));
      const { rows } = await sql<{ most: number }>`select max(failures) as most from login_failures`.execute(
        rest.services.db,
      );
      expect(rows).toEqual([{ most: 50 }]);
    }),
  );

  test(
    'of 50 parallel guesses from one place five are checked',
    clockStopped(async () => {
      const guesses = Array.from({ length: 50 }, () => login('the-auditor', 'a wrong guess'));
      const statuses = (await Promise.all(guesses)).map(({ status }) => status);
      expect(statuses.filter(status => status === 401)).toHaveLength(5);
    }),
  );

  test('an address that logged in lately is not locked out by guesses from elsewhere', async () => {
    expect((await login('the-auditor', PASSWORD)).status).toBe(200);
    for (let host = 0; host < 60; host += 1) await login('the-auditor', 'a wrong guess', `10.1.0.${host}`);
    for (let user = 0; user < 40; user += 1) await login(`user${user}`, 'a wrong guess');
    expect((await login('the-auditor', PASSWORD)).status).toBe(200);
  });

  test(
    'a network of IPv6 is one place',
    clockStopped(async () => {
      const from = (host: number) =>
        login('the-auditor', 'a wrong guess', `2001:db8:0:1::${host.toString(16)}`);
      for (let host = 1; host <= 5; host += 1) expect((await from(host)).status).toBe(401);
      expect((await from(6)).status).toBe(429);
      expect((await login('the-auditor', 'a wrong guess', '2001:db8:0:2::1')).status).toBe(401);
    }),
  );
});

describe('a session', () => {
  test('made with the old password ends with it, in the same second too; a new one begins at once', async () => {
    const as = await session();
    const body = { password: 'another password', old_password: PASSWORD };
    const path = `/api/users/${rest.userNumbers.operator}/`;
    expect((await rest.call('PUT', path, { as, body })).status).toBe(200);
    expect(keyOf(await rest.call('GET', '/api/tasks/', { as }))).toBe('token_revoked');
    const fresh = { header: `jwt ${(await login('the-operator', body.password)).body.token}` };
    expect((await rest.call('GET', '/api/tasks/', { as: fresh })).status).toBe(200);
  });

  test('ends for all of its refreshed tokens, whichever of them logs out', async () => {
    const refresh = async (as: { header: string }) =>
      ({ header: `jwt ${(await rest.call('POST', '/auth/refresh/', { as })).body.token}` }) as const;
    for (const leaving of [0, 1, 2]) {
      const first = await session();
      const second = await refresh(first);
      const all = [first, second, await refresh(second)];
      const other = await session();
      const { jti } = decodeJwt(all[leaving]!.header.slice(4));
      await rest.call('POST', `/api/tokens/${jti}/remove/`, { as: all[leaving]! });
      for (const as of all) {
        expect(keyOf(await rest.call('GET', '/api/tasks/', { as }))).toBe('token_revoked');
        expect((await rest.call('POST', '/auth/refresh/', { as })).status).toBe(401);
      }
      expect((await rest.call('GET', '/api/tasks/', { as: other })).status).toBe(200);
    }
  });

  test('and the tokens of a user end when that is asked for with a new password', async () => {
    const as = await session();
    const token = rest.tokens.operator;
    const path = `/api/users/${rest.userNumbers.operator}/`;
    const works = async () =>
      (await rest.call('GET', '/api/tasks/', { as: { header: `jwt ${token}` } })).status;
    const keeping = { password: 'another password', old_password: PASSWORD };
    expect((await rest.call('PUT', path, { as, body: keeping })).status).toBe(200);
    expect(await works()).toBe(200);
    const ending = { password: 'a third password', end_tokens: true };
    const administrator = await session('the-administrator');
    expect((await rest.call('PUT', path, { as: administrator, body: ending })).status).toBe(200);
    expect(await works()).toBe(401);
  });

  test('ends when its user asks for it', async () => {
    const as = await session();
    const path = `/api/users/${rest.userNumbers.operator}/`;
    expect((await rest.call('PUT', path, { as, body: { end_sessions: true } })).status).toBe(200);
    expect(keyOf(await rest.call('GET', '/api/tasks/', { as }))).toBe('token_revoked');
  });
});

describe('a login', () => {
  const FIREFOX = 'Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0';

  async function loginFrom(remoteAddress: string, username = 'the-operator') {
    const response = await rest.app.inject({
      method: 'POST',
      url: '/auth/',
      remoteAddress,
      headers: { 'user-agent': FIREFOX },
      payload: { username, password: PASSWORD },
    });
    const token = response.json().token as string;
    return { as: { header: `jwt ${token}` }, id: String(decodeJwt(token).jti) };
  }
  const ofUser = (id: number) => `/api/users/${id}/sessions/`;
  const own = () => ofUser(rest.userNumbers.operator);

  test('is told of with where it is from, and which one asks', async () => {
    const first = await loginFrom('10.0.0.1');
    const second = await loginFrom('10.0.0.2');
    const { body } = await rest.call('GET', own(), { as: second.as });
    expect(body.count).toBe(2);
    expect(body.results.find(({ id }: { id: string }) => id === first.id)).toMatchObject({
      user: { id: rest.userNumbers.operator, username: 'the-operator' },
      address: '10.0.0.1',
      client: 'Firefox 145, Linux',
      current: false,
      permissions: ['remove'],
    });
    expect(body.results.find(({ current }: { current: boolean }) => current).id).toBe(second.id);
    const byToken = await rest.call('GET', own(), { as: 'operator' });
    expect(byToken.body.results.map((one: { permissions: string[] }) => one.permissions)).toEqual([[], []]);
  });

  test('is ended alone, with all that was refreshed from it, and the audit has it with its user', async () => {
    const kept = await loginFrom('10.0.0.1');
    const lost = await loginFrom('10.0.0.2');
    const refreshed = await rest.call('POST', '/auth/refresh/', { as: lost.as, body: {} });
    const newer = { header: `jwt ${refreshed.body.token as string}` };
    expect((await rest.call('DELETE', `${own()}${lost.id}/`, { as: kept.as })).status).toBe(200);
    for (const as of [lost.as, newer])
      expect(keyOf(await rest.call('GET', '/api/session/', { as }))).toBe('token_revoked');
    const left = await rest.call('GET', own(), { as: kept.as });
    expect(left.body.results.map(({ id }: { id: string }) => id)).toEqual([kept.id]);
    expect(keyOf(await rest.call('DELETE', `${own()}${lost.id}/`, { as: kept.as }))).toBe(
      'session_not_found',
    );
    const audit = await rest.call('GET', `/api/audit/?entity=${rest.userNumbers.operator}&name=sessions`);
    expect(audit.body.results.at(-1)).toMatchObject({
      method: 'DELETE',
      status: 200,
      user: { username: 'the-operator' },
    });
  });

  test('of somebody else is seen by those who see users, and ended by administrators only', async () => {
    const other = await loginFrom('10.0.0.1');
    const auditor = await loginFrom('10.0.0.3', 'the-auditor');
    const administrator = await loginFrom('10.0.0.4', 'the-administrator');
    const seen = await rest.call('GET', own(), { as: auditor.as });
    expect(seen.body.results).toMatchObject([{ id: other.id, permissions: [] }]);
    expect((await rest.call('DELETE', `${own()}${other.id}/`, { as: auditor.as })).status).toBe(403);
    const mine = ofUser(rest.userNumbers.auditor);
    expect(keyOf(await rest.call('DELETE', `${mine}${other.id}/`, { as: auditor.as }))).toBe(
      'session_not_found',
    );
    const foreign = await rest.call('GET', mine, { as: other.as });
    expect([foreign.status, keyOf(foreign)]).toEqual([403, 'permission_denied']);
    expect(keyOf(await rest.call('DELETE', `${own()}${other.id}/`, {}))).toBe('session_required');
    expect((await rest.call('DELETE', `${own()}${other.id}/`, { as: administrator.as })).status).toBe(200);
    expect((await rest.call('GET', '/api/session/', { as: other.as })).status).toBe(401);
  });

  test('that ended with all others of its user is told of no more', async () => {
    const { as } = await loginFrom('10.0.0.1');
    const admin = await loginFrom('10.0.0.4', 'the-administrator');
    const path = `/api/users/${rest.userNumbers.operator}/`;
    expect((await rest.call('PUT', path, { as: admin.as, body: { end_sessions: true } })).status).toBe(200);
    expect((await rest.call('GET', own(), { as })).status).toBe(401);
    expect((await rest.call('GET', own(), { as: admin.as })).body.results).toEqual([]);
  });

  test('of before this was written down shows when it is used, and is ended as any other', async () => {
    const { as, id } = await loginFrom('10.0.0.1');
    await sql`delete from sessions`.execute(rest.services.db);
    const { body } = await rest.call('GET', own(), { as });
    expect(body.results).toMatchObject([{ id, address: '', client: '', current: true }]);
    expect((await rest.call('DELETE', `${own()}${id}/`, { as })).status).toBe(200);
    expect((await rest.call('GET', own(), { as })).status).toBe(401);
  });
});

describe('a user who is removed', () => {
  const pathOf = (id: number) => `/api/users/${id}/`;
  const remove = (id: number, as: { header: string }) =>
    rest.call('POST', `${pathOf(id)}remove/`, { as, body: {} });

  test('is logged out, their tokens end, and what they did keeps their name', async () => {
    const administrator = await session('the-administrator');
    const operator = await session();
    const id = rest.userNumbers.operator;
    await rest.services.events.record({ type: 'info', message: 'of old', user: 'the-operator' });
    const user = { id: rest.userIds.operator, username: 'the-operator' };
    const { row } = await rest.services.tasks.create({
      name: 'act',
      verboseName: 'Act',
      user,
      entities: [],
    });
    expect((await remove(id, administrator)).status).toBe(200);
    for (const as of [operator, 'operator'] as const)
      expect(keyOf(await rest.call('GET', '/api/session/', { as }))).toBe('token_revoked');
    expect((await login('the-operator', PASSWORD)).status).toBe(401);
    expect((await rest.call('GET', pathOf(id))).status).toBe(404);
    expect(keyOf(await remove(id, administrator))).toBe('user_not_found');
    expect((await rest.call('GET', '/api/tokens/')).text).not.toContain('the-operator');
    const task = await rest.call('GET', `/api/tasks/${row.id}/`);
    expect(task.body.user).toEqual({ id, username: 'the-operator' });
    const events = await rest.call('GET', '/api/events/?user=the-operator');
    expect(events.body.count).toBeGreaterThan(0);
    const audit = await rest.call('GET', `/api/audit/?entity=${id}`);
    expect(audit.body.results[0]).toMatchObject({
      action: 'POST /api/users/:id/remove/',
      entity: String(id),
    });
    const did = await rest.call('GET', '/api/audit/?user=the-operator');
    expect(did.body.results[0].user).toEqual({ id, username: 'the-operator' });
  });

  test('is another one than a new user of that name, whose number is a new one', async () => {
    const as = await session('the-administrator');
    const old = await session();
    const add = () =>
      rest.call('POST', '/api/users/', {
        as,
        body: { username: 'carol', password: 'correct horse battery', role: 'operator' },
      });
    const { id } = (await add()).body;
    expect((await remove(id, as)).status).toBe(200);
    const again = await add();
    expect([again.status, again.body.id]).toEqual([200, id + 1]);
    expect((await remove(rest.userNumbers.operator, as)).status).toBe(200);
    const body = { username: 'the-operator', password: PASSWORD, role: 'administrator' };
    expect((await rest.call('POST', '/api/users/', { as, body })).status).toBe(200);
    expect((await rest.call('GET', '/api/session/', { as: old })).status).toBe(401);
  });

  test('is never who asks for it, so that an administrator is left', async () => {
    const as = await session('the-administrator');
    const own = await remove(rest.userNumbers.administrator, as);
    expect([own.status, keyOf(own)]).toEqual([409, 'own_user']);
    const { services } = rest;
    await services.users.change(rest.userNumbers.administrator, { description: 'the last one' });
    const by = await services.users.row(rest.userNumbers.operator);
    await expect(services.users.remove(rest.userNumbers.administrator, by)).rejects.toMatchObject({
      msgKey: 'last_administrator',
    });
    const records = (await rest.call('GET', '/api/users/', { as })).body.results;
    const removable = records.filter((one: { permissions: string[] }) => one.permissions.includes('remove'));
    expect(removable.map((one: { username: string }) => one.username).toSorted()).toEqual([
      'the-auditor',
      'the-backup_service',
      'the-operator',
    ]);
  });
});
