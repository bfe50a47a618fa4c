/**
 * Who may call what: every route of the server, by every role, without a login and with an integration token. What the server
 * answers is compared with this table, which is written by hand from what the roles are for.
 */
import { setImmediate } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import type { Role } from '@virtkeep/shared/permissions';
import type { ApiDocument } from './api-document.ts';
import { makeRestApp, PASSWORD, type RestApp } from './app.ts';

// administrator, operator, aUditor, backup_service, Nobody who is known
const EVERYBODY = 'AOUBN';
const USERS = 'AOUB';
const ROLE_OF: Record<string, Role> = {
  A: 'administrator',
  O: 'operator',
  U: 'auditor',
  B: 'backup_service',
};

const TABLE: Record<string, string> = {
  // the controller; metrics from another machine
  'GET /metrics': 'A',
  'GET /api/openapi.json': EVERYBODY,
  'GET /api/controllers/check/': EVERYBODY,
  'GET /api/controllers/base-version/': USERS,
  'GET /api/controllers/system-time/': USERS,
  'GET /api/overview/': USERS,
  'GET /api/settings/': USERS,
  'PUT /api/settings/': 'A',
  'GET /healthz': EVERYBODY,
  'GET /readyz': EVERYBODY,
  // accounts; users and tokens of others
  'POST /auth/': EVERYBODY,
  'POST /auth/refresh/': USERS,
  'POST /api/session/': EVERYBODY,
  'GET /api/session/': USERS,
  'POST /api/session/refresh/': USERS,
  'DELETE /api/session/': USERS,
  'GET /api/tokens/': USERS,
  'POST /api/tokens/': USERS,
  'POST /api/tokens/{id}/remove/': USERS,
  'GET /api/users/': 'AU',
  'POST /api/users/': 'A',
  'GET /api/users/{id}/': 'AU',
  'PUT /api/users/{id}/': 'A',
  'POST /api/users/{id}/remove/': 'A',
  'GET /api/users/{id}/sessions/': 'AU',
  'DELETE /api/users/{id}/sessions/{session}/': 'A',
  'GET /api/audit/': 'AU',
  // tasks and events
  'GET /api/tasks/': USERS,
  'GET /api/tasks/count/': USERS,
  'PUT /api/tasks/check/': USERS,
  'GET /api/tasks/{id}/': USERS,
  'GET /api/tasks/{id}/response/': USERS,
  'PUT /api/tasks/{id}/cancel/': 'AOB',
  'PUT /api/tasks/{id}/release-locks/': 'A',
  'GET /api/events/': USERS,
  'GET /api/events/stream/': USERS,
  'GET /api/events/{id}/': USERS,
  // nodes and pools
  'GET /api/nodes/': USERS,
  'GET /api/nodes/{id}/usage/': USERS,
  'GET /api/clusters/': USERS,
  'GET /api/clusters/{id}/': USERS,
  'GET /api/resource-pools/': USERS,
  'GET /api/resource-pools/{id}/': USERS,
  'POST /api/nodes/': 'A',
  'GET /api/nodes/{id}/': USERS,
  'PUT /api/nodes/{id}/': 'A',
  'POST /api/nodes/enroll/': EVERYBODY,
  'POST /api/nodes/{id}/remove/': 'A',
  'GET /api/certificates/': 'A',
  'POST /api/certificates/revoke/': 'A',
  'GET /api/data-pools/': USERS,
  'GET /api/data-pools/{id}/': USERS,
  'PUT /api/data-pools/{id}/': 'A',
  'POST /api/data-pools/{id}/scan/': 'AO',
  // domains
  'GET /api/domains/': USERS,
  'GET /api/domains/{id}/': USERS,
  'PUT /api/domains/{id}/': 'A',
  'GET /api/protection/': USERS,
  // each action of it needs its own permission: rest-multi-manager.test.ts
  'POST /api/domains/multi-manager/': USERS,
  'POST /api/domains/{id}/start/': 'AO',
  'POST /api/domains/{id}/shutdown/': 'AO',
  'POST /api/domains/{id}/reboot/': 'AO',
  'POST /api/domains/{id}/suspend/': 'AO',
  'POST /api/domains/{id}/resume/': 'AO',
  'POST /api/domains/{id}/reset/': 'AO',
  'PUT /api/domains/{id}/template/': 'A',
  'POST /api/domains/{id}/remove/': 'A',
  'POST /api/domains/{id}/clone/': 'A',
  'POST /api/domains/{id}/change-template/': 'A',
  'GET /api/domains/{id}/snapshots/': USERS,
  'POST /api/domains/{id}/snapshots/': 'AO',
  'POST /api/domains/{id}/snapshots/{snapshot}/remove/': 'AO',
  'POST /api/domains/{id}/snapshots/{snapshot}/revert/': 'AO',
  // tags
  'GET /api/tags/': USERS,
  'POST /api/tags/': 'AO',
  'GET /api/tags/{id}/': USERS,
  'PUT /api/tags/{id}/': 'AO',
  'POST /api/tags/{id}/remove/': 'AO',
  'POST /api/tags/{id}/add-entity/': 'AO',
  'POST /api/tags/{id}/add-entities/': 'AO',
  'POST /api/tags/{id}/remove-entity/': 'AO',
  'POST /api/tags/{id}/remove-entities/': 'AO',
  'GET /api/scheduled-tasks/': USERS,
  'POST /api/scheduled-tasks/': 'AO',
  'GET /api/scheduled-tasks/queue/': USERS,
  'GET /api/scheduled-tasks/calendar/': USERS,
  'POST /api/scheduled-tasks/preview/': USERS,
  'GET /api/scheduled-tasks/{id}/': USERS,
  'PUT /api/scheduled-tasks/{id}/': 'AO',
  'GET /api/scheduled-tasks/{id}/preview/': USERS,
  'GET /api/scheduled-tasks/{id}/retention-preview/': USERS,
  'POST /api/scheduled-tasks/{id}/retention-preview/': USERS,
  'GET /api/scheduled-tasks/{id}/runs/': USERS,
  'POST /api/scheduled-tasks/{id}/copy/': 'AO',
  'POST /api/scheduled-tasks/{id}/enable/': 'AO',
  'POST /api/scheduled-tasks/{id}/disable/': 'AO',
  'POST /api/scheduled-tasks/{id}/remove/': 'AO',
  'POST /api/scheduled-tasks/{id}/run/': 'AO',
  'GET /api/domains/{id}/tags/': USERS,
  'GET /api/nodes/{id}/tags/': USERS,
  'GET /api/data-pools/{id}/tags/': USERS,
  'GET /api/vdisks/{id}/tags/': USERS,
  'GET /api/library/{id}/tags/': USERS,
  // notifications
  'GET /api/notification-targets/': 'A',
  'POST /api/notification-targets/': 'A',
  'GET /api/notification-targets/{id}/': 'A',
  'PUT /api/notification-targets/{id}/': 'A',
  'POST /api/notification-targets/{id}/remove/': 'A',
  'POST /api/notification-targets/{id}/test/': 'A',
  'GET /api/notifications/': 'A',
  'GET /api/notifications/{id}/': 'A',
  'POST /api/notifications/{id}/retry/': 'A',
  'POST /api/notifications/{id}/remove/': 'A',
  // ISO images
  'GET /api/iso/': USERS,
  'PUT /api/iso/': 'A',
  'GET /api/iso/{id}/': USERS,
  'GET /api/iso/{id}/download/': 'AO',
  'PUT /api/iso/{id}/download/': 'AO',
  'GET /api/iso/download/{ticket}/': EVERYBODY,
  'POST /api/iso/upload/': 'A',
  'POST /api/iso/{id}/upload/': 'A',
  // uploads of backup files
  'POST /api/library/upload/': 'A',
  'GET /api/library/upload/{id}/': 'A',
  'PATCH /api/library/upload/{id}/': 'A',
  'DELETE /api/library/upload/{id}/': 'A',
  // disks of others
  'GET /api/vdisks/': USERS,
  'GET /api/vdisks/{id}/': USERS,
  'POST /api/domains/{id}/attach-vdisk/': 'AOB',
  'POST /api/domains/{id}/detach-vdisk/': 'AOB',
  // guests
  'GET /api/domains/{id}/available-guest-cmds/': 'AO',
  'POST /api/domains/{id}/guest-command/': 'AO',
  'GET /api/domains/{id}/guest-info/': USERS,
  'GET /api/domains/{id}/ssh-keys/': 'AO',
  'POST /api/domains/{id}/ssh-keys/': 'AO',
  'POST /api/domains/{id}/ssh-keys/remove/': 'AO',
  'POST /api/domains/{id}/set-hostname/': 'AO',
  'POST /api/domains/{id}/add-to-ad/': 'AO',
  'POST /api/domains/{id}/rm-from-ad/': 'AO',
  'POST /api/domains/{id}/sysprep/': 'AO',
  'POST /api/domains/{id}/prepare/': 'AO',
  'GET /api/domains/{id}/prepare-operations/': 'AO',
  'POST /api/domains/{id}/attach-guest-tools-iso/': 'AO',
  'POST /api/domains/{id}/detach-guest-tools-iso/': 'AO',
  // backups
  'POST /api/domains/backup/': 'AOB',
  'POST /api/domains/show-backup/': USERS,
  'POST /api/domains/automated-restore/': 'AO',
  'POST /api/domains/convert-backup/': 'AO',
  'POST /api/domains/config-restore/': 'A',
  'POST /api/domains/import-disk/': 'A',
  'GET /api/library/': USERS,
  'GET /api/library/{id}/': USERS,
  'PUT /api/library/{id}/': 'AO',
  'POST /api/library/{id}/refresh/': 'AO',
  'POST /api/library/{id}/verify/': 'AO',
  'POST /api/library/{id}/remove/': 'AO',
  'POST /api/library/{id}/compress/': 'AO',
  'POST /api/library/{id}/unpack/': 'AO',
  'POST /api/library/{id}/convert-backup/': 'AO',
  'POST /api/library/{id}/export/': 'AO',
  'POST /api/library/{id}/trim/': 'AO',
  'GET /api/library/{id}/download/': 'AO',
};

/** What an integration token does not get, whosever it is. */
const SESSIONS_ONLY = new Set([
  'POST /auth/refresh/',
  'POST /api/session/refresh/',
  'DELETE /api/session/',
  'POST /api/tokens/',
  'POST /api/users/',
  'PUT /api/users/{id}/',
  'POST /api/users/{id}/remove/',
  'DELETE /api/users/{id}/sessions/{session}/',
]);
/** Its answer does not end before the controller does. */
const ENDLESS = 'GET /api/events/stream/';
/** Ends the login with which the others are tried. */
const LOGOUT = 'DELETE /api/session/';

let rest: RestApp;
const sessions: Record<string, string> = {};

beforeAll(async () => {
  rest = await makeRestApp();
  for (const role of Object.values(ROLE_OF)) {
    const body = { username: `the-${role}`, password: PASSWORD };
    sessions[role] = (await rest.call('POST', '/auth/', { as: null, body })).body.token;
  }
});
afterAll(() => rest.close());

/** Whether a call gets past the question who makes it. */
async function passes(operation: string, token: string | undefined): Promise<boolean> {
  const [method, path] = operation.split(' ') as ['GET', string];
  await setImmediate();
  const response = await rest.app.inject({
    method,
    url: path.replace(/^\/api\/users\/\{id\}/, '/api/users/999').replace(/\{[^}]+\}/g, () => newId()),
    remoteAddress: '10.0.0.7',
    headers: token === undefined ? {} : { authorization: `jwt ${token}` },
    ...(method === 'GET' || operation.startsWith('HEAD') ? {} : { payload: {} }),
  });
  if (token !== undefined && response.statusCode === 401 && !SESSIONS_ONLY.has(operation))
    throw new Error(`${operation}: a token that is good was refused`);
  return response.statusCode !== 401 && response.statusCode !== 403;
}

async function whoPasses(operation: string): Promise<string> {
  let letters = '';
  for (const [letter, role] of Object.entries(ROLE_OF))
    if (await passes(operation, sessions[role])) letters += letter;
  return (await passes(operation, undefined)) ? `${letters}N` : letters;
}

/** Also those methods that the document does not name. */
function withHead(operation: string): string[] {
  const [method, path] = operation.split(' ') as [string, string];
  const url = path.replaceAll('{', ':').replaceAll('}', '');
  return method === 'GET' && rest.app.hasRoute({ method: 'HEAD', url })
    ? [operation, `HEAD ${path}`]
    : [operation];
}

test('the table names every route of the server, and no other', () => {
  const { paths } = rest.app.swagger() as unknown as ApiDocument;
  const served = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map(method => `${method.toUpperCase()} ${path}`),
  );
  expect(served.sort()).toEqual(Object.keys(TABLE).sort());
});

test('every route is for whom the table says, also by HEAD', async () => {
  const answered: Record<string, string> = {};
  const expected: Record<string, string> = {};
  for (const [row, letters] of Object.entries(TABLE)) {
    if (row === ENDLESS || row === LOGOUT) continue;
    for (const operation of withHead(row)) {
      expected[operation] = letters;
      answered[operation] = await whoPasses(operation);
    }
  }
  expect(answered).toEqual(expected);
});

test('a token of an administrator gets as far, but to what needs a session', async () => {
  const answered: Record<string, boolean> = {};
  for (const row of Object.keys(TABLE))
    if (row !== ENDLESS) answered[row] = await passes(row, rest.tokens.administrator);
  expect(Object.keys(answered).filter(row => !answered[row])).toEqual([...SESSIONS_ONLY]);
});

test('the pages of the API document need no login', async () => {
  for (const path of ['/api/docs', '/api/docs/', '/api/docs/static/index.html', '/api/docs/json'])
    expect(
      (await rest.app.inject({ method: 'GET', url: path, remoteAddress: '10.0.0.7' })).statusCode,
    ).toBeLessThan(400);
});

test('of themselves everybody sees and changes the same', async () => {
  for (const role of Object.values(ROLE_OF)) {
    const path = `/api/users/${rest.userNumbers[role]}/`;
    expect(await passes(`GET ${path}`, sessions[role])).toBe(true);
    expect(await passes(`PUT ${path}`, sessions[role])).toBe(true);
  }
});

test('own tasks and those of others are cancelled by whom they concern', async () => {
  rest.services.tasks.setCanceller(task => rest.services.tasks.finish(task.row.id, { status: 'CANCELED' }));
  const answered: Record<string, string> = {};
  for (const [letter, role] of Object.entries(ROLE_OF)) {
    answered[letter] = '';
    for (const owner of [role, 'somebody else']) {
      const id = owner === role ? rest.userIds[role] : newId();
      const user = { id, username: owner };
      const { row } = await rest.services.tasks.create({
        name: 'act',
        verboseName: 'Act',
        user,
        entities: [],
      });
      const passed = await passes(`PUT /api/tasks/${row.id}/cancel/`, sessions[role]);
      const { status } = (await rest.services.tasks.get(row.id)).row;
      expect(status).toBe(passed ? 'CANCELED' : 'IN_PROGRESS');
      if (passed) answered[letter] += owner === role ? 'own ' : 'foreign';
    }
  }
  expect(answered).toEqual({ A: 'own foreign', O: 'own foreign', U: '', B: 'own ' });
});

test('every user logs out, and their tokens end', async () => {
  const logins = { ...sessions };
  for (const role of Object.values(ROLE_OF))
    sessions[role] = (await rest.services.tokens.login(`the-${role}`, PASSWORD, '10.0.0.7')).token;
  expect(await whoPasses(LOGOUT)).toBe(USERS);
  expect(await whoPasses(LOGOUT)).toBe('');
  Object.assign(sessions, logins);
});

test('the stream of events is for every user', async () => {
  expect(await passes(ENDLESS, undefined)).toBe(false);
  // it ends with the controller
  rest.draining.abort();
  for (const role of Object.values(ROLE_OF)) expect(await passes(ENDLESS, sessions[role])).toBe(true);
});
