/** Every answer is held against the API document by `call`; these tests say what else it must be. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { decodeJwt } from 'jose';
import { clockStopped } from '../../../controller/src/auth/stopped-clock.ts';
import { makeRestApp, PASSWORD, type RestApp } from './app.ts';

let rest: RestApp;
let administrator: { header: string };

beforeAll(async () => {
  rest = await makeRestApp();
  administrator = await rest.session('administrator');
});

afterAll(() => rest.close());

const admin = { id: newId(), username: 'someone' };

function newTask(values: object = {}) {
  return rest.services.tasks.create({
    name: 'domain_backup',
    verboseName: 'Back up web-1',
    user: admin,
    entities: [
      { id: newId(), class: 'file' },
      { id: newId(), class: 'domain' },
    ],
    nodeId: newId(),
    ...values,
  });
}

describe('login', () => {
  test('takes JSON and forms, and gives a token with the claims of the family', async () => {
    const credentials = { username: 'the-operator', password: PASSWORD };
    const json = await rest.call('POST', '/auth/', { as: null, body: credentials });
    expect(json.status).toBe(200);
    expect(Object.keys(json.body).sort()).toEqual(['expires_on', 'token']);
    const claims = decodeJwt(json.body.token);
    expect(Object.keys(claims).sort()).toEqual(['exp', 'jti', 'orig_iat', 'user_id', 'username']);
    expect(claims.username).toBe('the-operator');
    expect(new Date(claims.exp! * 1000).toISOString()).toBe(json.body.expires_on);

    const form = await rest.call('POST', '/auth', {
      as: null,
      raw: new URLSearchParams(credentials).toString(),
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
    });
    expect(form.status).toBe(200);
  });

  test.each(['jwt', 'JWT', 'Jwt', 'Bearer', 'bearer'])('takes the scheme %s', async scheme => {
    const header = `${scheme} ${rest.tokens.auditor}`;
    expect((await rest.call('GET', '/api/tasks/', { as: { header } })).status).toBe(200);
  });

  test('says nothing about which of name and password is wrong', async () => {
    const wrongPassword = await rest.call('POST', '/auth/', {
      as: null,
      body: { username: 'the-auditor', password: 'wrong password' },
    });
    const wrongName = await rest.call('POST', '/auth/', {
      as: null,
      body: { username: 'nobody', password: 'wrong password' },
    });
    expect([wrongPassword.status, wrongName.status]).toEqual([401, 401]);
    expect(wrongPassword.body.errors).toEqual(wrongName.body.errors);
  });

  test(
    'slows repeated failures down with 429 and Retry-After',
    clockStopped(async () => {
      const body = { username: 'guessed', password: 'wrong password' };
      const statuses: number[] = [];
      for (let attempt = 0; attempt < 6; attempt += 1) {
        statuses.push((await rest.call('POST', '/auth/', { as: null, body })).status);
      }
      expect(statuses.slice(0, 5)).toEqual([401, 401, 401, 401, 401]);
      const last = await rest.call('POST', '/auth/', { as: null, body });
      expect(last.status).toBe(429);
      expect(last.body.errors[0].msg_key).toBe('too_many_logins');
      expect(Number(last.headers['retry-after'])).toBeGreaterThan(0);
    }),
  );

  test('a refreshed token works, an integration token is not refreshed', async () => {
    const { body } = await rest.call('POST', '/auth/', {
      as: null,
      body: { username: 'the-auditor', password: PASSWORD },
    });
    const fresh = await rest.call('POST', '/auth/refresh/', { as: { header: `jwt ${body.token}` } });
    expect(fresh.status).toBe(200);
    expect(decodeJwt(fresh.body.token).orig_iat).toBe(decodeJwt(body.token).orig_iat);
    const byField = await rest.call('POST', '/auth/refresh/', { as: null, body: { token: body.token } });
    expect(byField.status).toBe(200);
    expect((await rest.call('POST', '/auth/refresh/')).status).toBe(401);
  });
});

describe('tokens', () => {
  test('are issued once, listed without their text, and refused once removed', async () => {
    const made = await rest.call('POST', '/api/tokens/', {
      as: await rest.session('operator'),
      body: { name: 'nightly', days: 300, password: PASSWORD },
    });
    expect(made.status).toBe(200);
    const header = `Bearer ${made.body.token}`;
    expect((await rest.call('GET', '/api/tasks/', { as: { header } })).status).toBe(200);
    const list = await rest.call('GET', '/api/tokens/?name=night', { as: 'operator' });
    expect(list.body.results.map((token: { name: string }) => token.name)).toEqual(['nightly']);
    expect(list.text).not.toContain(made.body.token);
    expect((await rest.call('POST', `/api/tokens/${made.body.id}/remove/`, { as: 'operator' })).status).toBe(
      200,
    );
    const after = await rest.call('GET', '/api/tasks/', { as: { header } });
    expect(after.body.errors[0]).toMatchObject({ code: '40104', msg_key: 'token_revoked' });
  });

  test('of others are seen by administrators only', async () => {
    const body = { name: 'of the administrator', password: PASSWORD };
    const made = await rest.call('POST', '/api/tokens/', { as: administrator, body });
    const others = await rest.call('GET', '/api/tokens/', { as: 'operator' });
    expect(others.text).not.toContain(made.body.id);
    const refused = await rest.call('POST', `/api/tokens/${made.body.id}/remove/`, { as: 'operator' });
    expect(refused.status).toBe(404);
    const forAnother = { name: 'x', password: PASSWORD, user: rest.userNumbers.administrator };
    const as = await rest.session('operator');
    expect((await rest.call('POST', '/api/tokens/', { as, body: forAnother })).status).toBe(403);
    const forOperator = { ...forAnother, user: rest.userNumbers.operator };
    const given = await rest.call('POST', '/api/tokens/', { as: administrator, body: forOperator });
    expect(given.body.user.username).toBe('the-operator');
  });

  test('a login ends with its logout', async () => {
    const { body } = await rest.call('POST', '/auth/', {
      as: null,
      body: { username: 'the-backup_service', password: PASSWORD },
    });
    const header = `jwt ${body.token}`;
    const jti = decodeJwt(body.token).jti;
    expect((await rest.call('POST', `/api/tokens/${jti}/remove/`, { as: { header } })).status).toBe(200);
    expect((await rest.call('GET', '/api/tasks/', { as: { header } })).body.errors[0].msg_key).toBe(
      'token_revoked',
    );
  });
});

describe('users', () => {
  test('are made, changed, and found in lists', async () => {
    const body = { username: 'new.user', password: 'a good password', role: 'operator' };
    const made = await rest.call('POST', '/api/users/', { as: administrator, body });
    expect(made.status).toBe(200);
    expect(made.text).not.toContain('password');
    expect((await rest.call('POST', '/api/users/', { as: administrator, body })).body.errors[0].msg_key).toBe(
      'name_taken',
    );
    const changed = await rest.call('PUT', `/api/users/${made.body.id}/`, {
      as: administrator,
      body: { role: 'auditor' },
    });
    expect(changed.body.role).toBe('auditor');
    const list = await rest.call('GET', '/api/users/?name=new.&fields=username,role');
    expect(list.body.results).toEqual([{ username: 'new.user', role: 'auditor' }]);
  });

  test.each([
    ['short', 'shortpw'],
    ['with the name', 'weak-user 1234567'],
    ['monotonous', 'aaaaaaaaaaaaaaa'],
  ])('a password that is %s is refused', async (_why, password) => {
    const body = { username: 'weak-user', password, role: 'auditor' };
    const answer = await rest.call('POST', '/api/users/', { as: administrator, body });
    expect(answer.status).toBe(400);
    expect(answer.body.errors[0].field).toBe('password');
  });

  test('the last administrator is kept', async () => {
    const path = `/api/users/${rest.userNumbers.administrator}/`;
    for (const body of [{ enabled: false }, { role: 'auditor' }]) {
      const answer = await rest.call('PUT', path, { as: administrator, body });
      expect([answer.status, answer.body.errors[0].msg_key]).toEqual([409, 'last_administrator']);
    }
    expect((await rest.call('GET', path)).body).toMatchObject({ enabled: true, role: 'administrator' });
  });

  test('anybody changes the own password with the old one, which ends earlier logins', async () => {
    const body = { username: 'changer', password: 'first password', role: 'auditor' };
    const { id } = (await rest.call('POST', '/api/users/', { as: administrator, body })).body;
    const login = await rest.call('POST', '/auth/', {
      as: null,
      body: { username: 'changer', password: body.password },
    });
    const as = { header: `jwt ${login.body.token}` };
    const path = `/api/users/${id}/`;
    expect((await rest.call('PUT', path, { as, body: { password: 'second password' } })).status).toBe(400);
    const wrong = { password: 'second password', old_password: 'not it' };
    expect((await rest.call('PUT', path, { as, body: wrong })).status).toBe(400);
    expect((await rest.call('PUT', path, { as, body: { role: 'administrator' } })).status).toBe(403);
    const right = { password: 'second password', old_password: 'first password' };
    expect((await rest.call('PUT', path, { as, body: right })).status).toBe(200);
    expect((await rest.call('GET', '/api/tasks/', { as })).status).toBe(401);
  });
});

describe('lists', () => {
  test('page through with full URLs', async () => {
    for (let number = 0; number < 5; number += 1) await newTask({ name: `page_${number}` });
    const first = await rest.call('GET', '/api/tasks/?limit=2&ordering=created&fields=name,id');
    expect(first.body.count).toBeGreaterThanOrEqual(5);
    expect(first.body.previous).toBeNull();
    expect(Object.keys(first.body.results[0]).sort()).toEqual(['id', 'name']);
    const next = new URL(first.body.next);
    expect(next.origin).toBe('http://localhost:80'.replace(':80', ''));
    const second = await rest.call('GET', next.pathname + next.search);
    expect(new URL(second.body.previous).searchParams.get('offset')).toBe('0');
    expect(second.body.results[0].id).not.toBe(first.body.results[0].id);
  });

  test('refuse what they do not know, all of it at once', async () => {
    expect((await rest.call('GET', '/api/tasks/?ordering=colour')).body.errors[0].msg_key).toBe(
      'unknown_ordering',
    );
    expect((await rest.call('GET', '/api/tasks/?fields=id,colour')).status).toBe(400);
    const answer = await rest.call('GET', '/api/tasks/?colour=1&limit=many&taste=2');
    expect(answer.status).toBe(400);
    expect(answer.body.errors.map((error: { field: string }) => error.field).sort()).toEqual([
      'colour',
      'limit',
      'taste',
    ]);
  });

  test('filter tasks by parent, status, entity, node and name', async () => {
    const parent = await newTask({ multitask: true, nodeId: null, verboseName: 'Night_run 100%' });
    const part = await newTask({ parent: parent.row.id });
    const ids = async (query: string) =>
      (await rest.call('GET', `/api/tasks/?${query}`)).body.results.map((task: { id: string }) => task.id);
    expect(await ids(`parent=${parent.row.id}`)).toEqual([part.row.id]);
    expect(await ids(`entity=${part.entities[1]!.id}`)).toEqual([part.row.id]);
    expect(await ids(`node=${part.row.node_id}`)).toEqual([part.row.id]);
    expect(await ids(`name=${encodeURIComponent('night_run 100%')}`)).toEqual([parent.row.id]);
    expect(await ids('status=LOST')).toEqual([]);
  });
});

describe('tasks', () => {
  test('show progress, end, and keep their outcome', async () => {
    const { row } = await newTask();
    const path = `/api/tasks/${row.id}/`;
    const fresh = (await rest.call('GET', path)).body;
    expect(fresh).toMatchObject({ status: 'IN_PROGRESS', progress: 0, error: null, error_message: '' });
    expect(Object.values(fresh.entities)).toEqual(['file', 'domain']);
    await rest.services.tasks.update(row.id, { progress: 40, detail: { phase: 'copy', bytes_done: 4 } });
    await rest.services.tasks.update(row.id, { progress: 30 });
    expect((await rest.call('GET', path)).body).toMatchObject({
      progress: 40,
      detail: { phase: 'copy', steps: [{ phase: 'copy', message: '' }] },
    });
    await rest.services.tasks.finish(row.id, { status: 'SUCCESS', result: { id: 'x' } });
    await rest.services.tasks.finish(row.id, { status: 'CANCELED' });
    const ended = (await rest.call('GET', path)).body;
    expect(ended).toMatchObject({ status: 'SUCCESS', progress: 100, is_cancellable: false });
    expect(ended.events).toHaveLength(1);
    expect((await rest.call('GET', `${path}response/`)).body).toEqual({
      status: 'SUCCESS',
      response: { id: 'x' },
      error: null,
    });
    const events = await rest.call('GET', `/api/events/?entity=${Object.keys(ended.entities)[0]}`);
    expect(events.body.results).toMatchObject([{ task: row.id, type: 'info' }]);
    const its = await rest.call('GET', `/api/events/?task=${row.id}`);
    expect(its.body).toMatchObject({ count: 1, results: [{ id: ended.events[0] }] });
    expect((await rest.call('GET', `/api/events/?task=${newId()}`)).body.count).toBe(0);
  });

  test('are listed with their parts, without them, or as parts alone', async () => {
    const { row } = await newTask({ name: 'of_parts', multitask: true });
    const part = await newTask({ name: 'a_part', parent: row.id });
    const idsOf = async (query: string) =>
      (await rest.call('GET', `/api/tasks/?limit=1000&${query}`)).body.results.map(
        ({ id }: { id: string }) => id,
      );
    expect(await idsOf('is_part=false')).toContain(row.id);
    expect(await idsOf('is_part=false')).not.toContain(part.row.id);
    expect(await idsOf('is_part=true')).toEqual(expect.arrayContaining([part.row.id]));
    expect(await idsOf('is_part=true')).not.toContain(row.id);
    expect(await idsOf(`parent=${row.id}`)).toEqual([part.row.id]);
  });

  test('tell their error', async () => {
    const { row } = await newTask();
    const error = new VirtkeepError('pool_no_space', { pool: 'p', free_bytes: 1, needed_bytes: 2 });
    await rest.services.tasks.finish(row.id, { status: 'FAILED', error });
    const task = (await rest.call('GET', `/api/tasks/${row.id}/`)).body;
    expect(task.error).toMatchObject({ code: '40908', msg_key: 'pool_no_space' });
    expect(task.error_message).toContain('1 bytes free');
  });

  test('are cancelled through the canceller, once', async () => {
    const { row } = await newTask();
    rest.services.tasks.setCanceller(task => rest.services.tasks.finish(task.row.id, { status: 'CANCELED' }));
    const path = `/api/tasks/${row.id}/cancel/`;
    expect((await rest.call('PUT', path, { as: 'auditor' })).status).toBe(403);
    expect((await rest.call('PUT', path, { as: 'operator' })).body.status).toBe('CANCELED');
    expect((await rest.call('PUT', path)).body.errors[0].msg_key).toBe('not_cancellable');
  });

  test('are cancelled by who began them, operators and administrators, and nobody else', async () => {
    rest.services.tasks.setCanceller(task => rest.services.tasks.finish(task.row.id, { status: 'CANCELED' }));
    const began = (role: 'operator' | 'backup_service') =>
      newTask({ user: { id: rest.userIds[role], username: `the-${role}` } });
    const cancel = async (id: string, as: 'operator' | 'backup_service' | 'auditor' | 'administrator') =>
      (await rest.call('PUT', `/api/tasks/${id}/cancel/`, { as })).status;
    const foreign = (await began('operator')).row.id;
    const shown = await rest.call('GET', `/api/tasks/${foreign}/`, { as: 'backup_service' });
    expect(shown.body.permissions).toEqual([]);
    expect(await cancel(foreign, 'backup_service')).toBe(403);
    expect(await cancel(foreign, 'auditor')).toBe(403);
    expect((await rest.call('GET', `/api/tasks/${foreign}/`)).body.status).toBe('IN_PROGRESS');
    const own = (await began('backup_service')).row.id;
    const ownTask = await rest.call('GET', `/api/tasks/${own}/`, { as: 'backup_service' });
    expect(ownTask.body.permissions).toEqual(['cancel']);
    expect(await cancel(own, 'backup_service')).toBe(200);
    expect(await cancel((await began('backup_service')).row.id, 'operator')).toBe(200);
    expect(await cancel(foreign, 'administrator')).toBe(200);
  });

  test('are LOST with their node and final when it returns, or when their locks are released', async () => {
    const nodeId = newId();
    const [a, b] = [await newTask({ nodeId }), await newTask({ nodeId })];
    expect((await rest.services.tasks.markLost(nodeId)).sort()).toEqual([a.row.id, b.row.id].sort());
    const lost = (await rest.call('GET', `/api/tasks/${a.row.id}/`)).body;
    expect(lost).toMatchObject({ status: 'LOST', permissions: ['release_locks'] });
    await rest.services.tasks.finish(a.row.id, { status: 'SUCCESS' });
    expect((await rest.call('GET', `/api/tasks/${a.row.id}/`)).body.status).toBe('SUCCESS');
    const released = await rest.call('PUT', `/api/tasks/${b.row.id}/release-locks/`);
    expect(released.body).toMatchObject({ status: 'FAILED', error: { msg_key: 'outcome_unknown' } });
  });

  test('are counted and checked', async () => {
    const { body } = await rest.call('GET', '/api/tasks/count/');
    const total = Object.values(body.statuses as Record<string, number>).reduce((sum, n) => sum + n, 0);
    expect(body.count).toBe(total);
    rest.services.tasks.setChecker(async tasks => {
      for (const task of tasks) await rest.services.tasks.finish(task.row.id, { status: 'SUCCESS' });
    });
    const checked = (await rest.call('PUT', '/api/tasks/check/')).body;
    expect(checked.checked).toBeGreaterThan(0);
    expect(checked.changed).toBe(checked.checked);
  });
});

describe('system', () => {
  test.each(['/api/controllers/check/', '/healthz', '/readyz'])('%s needs no login', async path => {
    expect((await rest.call('GET', path, { as: null })).status).toBe(200);
  });

  test('version, time and metrics', async () => {
    expect((await rest.call('GET', '/api/controllers/base-version/')).body.version).toMatch(/^\d+\.\d+\.\d+/);
    const time = (await rest.call('GET', '/api/controllers/system-time/')).body;
    expect(new Date(time.local_time).getTime()).toBe(new Date(time.utc_time).getTime());
    expect((await rest.call('GET', '/metrics')).text).toContain('virtkeep_tasks{status=');
    const forwarded = await rest.call('GET', '/metrics', {
      as: null,
      headers: { 'x-forwarded-for': '127.0.0.1' },
    });
    expect(forwarded.status).toBe(401);
  });

  test('a path answers the same with and without its slash, and never redirects', async () => {
    for (const path of ['/api/tasks', '/api/controllers/check', '/api/users']) {
      const [bare, slashed] = [await rest.call('GET', path), await rest.call('GET', `${path}/`)];
      expect([bare.status, slashed.status]).toEqual([200, 200]);
    }
  });

  test('405 names what is allowed', async () => {
    const answer = await rest.call('DELETE', '/api/tasks/');
    expect([answer.status, answer.headers.allow]).toEqual([405, 'GET, HEAD']);
    expect(answer.body.errors[0].msg_key).toBe('method_not_allowed');
    expect((await rest.call('GET', '/api/nothing/')).status).toBe(404);
  });

  test('every operation of the document says who may call it', () => {
    const document = rest.app.swagger() as {
      openapi: string;
      paths: Record<string, Record<string, unknown>>;
    };
    expect(document.openapi).toBe('3.1.0');
    for (const path of Object.keys(document.paths)) {
      if (path.startsWith('/api/')) expect(path).toMatch(/\/$|openapi\.json$/);
    }
  });
});

describe('audit', () => {
  test('tells who changed what, without secrets, to administrators and auditors', async () => {
    const secret = 'a very secret word';
    await rest.call('POST', '/api/users/', {
      as: administrator,
      body: { username: 'audited', password: secret, role: 'auditor' },
    });
    await rest.call('POST', '/api/users/', {
      as: administrator,
      body: { username: 'audited', password: secret, role: 'auditor' },
    });
    const { body, text } = await rest.call('GET', '/api/audit/?name=/api/users&limit=2', { as: 'auditor' });
    expect(body.results).toMatchObject([
      { status: 409, error: 'name_taken', user: { username: 'the-administrator' } },
      { status: 200, error: null, action: 'POST /api/users/', request: { username: 'audited' } },
    ]);
    expect(text).not.toContain(secret);
    expect((await rest.call('GET', '/api/audit/', { as: 'operator' })).status).toBe(403);
  });
});

describe('idempotency keys', () => {
  test('the same request gives the same answer, another one a conflict', async () => {
    const body = {
      username: 'once',
      password: 'only made one time',
      role: 'auditor',
      idempotency_key: newId(),
    };
    const [first, concurrent] = await Promise.all([
      rest.call('POST', '/api/users/', { as: administrator, body }),
      rest.call('POST', '/api/users/', { as: administrator, body }),
    ]);
    const later = await rest.call('POST', '/api/users', { as: administrator, body });
    expect([first.status, concurrent.status, later.status]).toEqual([200, 200, 200]);
    expect(concurrent.body).toEqual(first.body);
    expect(later.body).toEqual(first.body);
    const other = await rest.call('POST', '/api/users/', {
      as: administrator,
      body: { ...body, role: 'operator' },
    });
    expect([other.status, other.body.errors[0].msg_key]).toEqual([409, 'idempotency_conflict']);
  });

  test('a request that failed frees its key', async () => {
    const key = newId();
    const bad = { username: 'twice', password: 'short', role: 'auditor', idempotency_key: key };
    expect((await rest.call('POST', '/api/users/', { as: administrator, body: bad })).status).toBe(400);
    const good = { ...bad, password: 'long enough now' };
    expect((await rest.call('POST', '/api/users/', { as: administrator, body: good })).status).toBe(200);
  });

  test('a request of which nobody knows whether it was carried out is refused when it makes something', async () => {
    const made = {
      username: 'perhaps',
      password: 'long enough now',
      role: 'auditor',
      idempotency_key: newId(),
    };
    const user = await rest.call('POST', '/api/users/', { as: administrator, body: made });
    const changed = { description: 'changed', idempotency_key: newId() };
    const change = () =>
      rest.call('PUT', `/api/users/${user.body.id}/`, { as: administrator, body: changed });
    await change();
    // as after a crash
    await rest.services.db.updateTable('idempotency').set({ status: null, answer_json: null }).execute();
    const again = await rest.call('POST', '/api/users/', { as: administrator, body: made });
    expect([again.status, again.body.errors[0].msg_key]).toEqual([409, 'idempotency_answer_gone']);
    expect((await change()).status).toBe(200);
  });

  test('are bounded for each user', async () => {
    rest.services.config.limits.idempotency_keys_per_user = 3;
    const send = (as: 'operator' | 'backup_service') =>
      rest.call('PUT', '/api/tasks/check/', { as, body: { idempotency_key: newId() } });
    const statuses = [];
    for (let count = 0; count < 4; count += 1) statuses.push((await send('operator')).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
    expect((await send('backup_service')).status).toBe(200);
    rest.services.config.limits.idempotency_keys_per_user = 20_000;
    expect((await send('operator')).status).toBe(200);
  });

  test('must be a uuid', async () => {
    const body = { description: 'x', idempotency_key: 'seven' };
    expect(
      (await rest.call('PUT', `/api/users/${rest.userNumbers.operator}/`, { as: administrator, body })).body
        .errors[0].msg_key,
    ).toBe('invalid_uuid');
  });
});
