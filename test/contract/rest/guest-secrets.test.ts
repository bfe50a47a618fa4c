/** What guests are given and answer may be secret: none of it is in the database, its files, the audit, or the log. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { makeTestDatabase, type TestDatabase } from '../../../controller/src/store/test-database.ts';
import { makeRestApp, type RestApp } from './app.ts';
import { ended, enrolled, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

const SECRET = 'S3cr3t-of-the-guest';
const ENCODED = Buffer.from(SECRET).toString('base64');

let rest: RestApp;
let agent: FakeAgent;
let domain: string;
let database: TestDatabase;
const logged: string[] = [];

beforeAll(async () => {
  database = await makeTestDatabase();
  rest = await makeRestApp({}, async () => {}, { database: database.target, log: listeningLog() });
  ({ agent } = await enrolled(rest, 'n1'));
  domain = agent.setDomain({}).id;
  await until(async () => (await rest.call('GET', `/api/domains/${domain}/`)).status === 200);
});
afterAll(async () => {
  await stopAll(rest);
  await database.release();
});

/** Everything that is logged, before the logger removes secrets from it. */
function listeningLog(): Logger {
  const write = (...words: unknown[]) => {
    const texts = words.map(word =>
      JSON.stringify(word, (_key, value: unknown) =>
        value instanceof Error || (typeof value === 'object' && value !== null && 'stack' in value)
          ? { ...value, text: String((value as Error).stack) }
          : value,
      ),
    );
    logged.push(texts.join(' '));
    return undefined as never;
  };
  const log = { error: write, warn: write, info: write, debug: write, child: () => log } as unknown as Logger;
  return log;
}

const post = (path: string, body: object) =>
  rest.call('POST', `/api/domains/${domain}/${path}`, { as: 'operator', body });

/** The database with its journal, as they lie on the disk, or its rows, and the log. */
async function everythingKept(): Promise<string> {
  return [await database.contents(), ...logged].join('\n');
}

async function expectNowhere(): Promise<void> {
  const kept = await everythingKept();
  expect(kept).toContain(domain);
  for (const text of [SECRET, ENCODED]) expect(kept.indexOf(text)).toBe(-1);
}

async function audited(): Promise<Record<string, unknown>[]> {
  const { body } = await rest.call('GET', `/api/audit/?entity=${domain}&ordering=created&limit=1000`);
  return body.results;
}

const COMMANDS: [string, object][] = [
  ['guest-set-user-password', { username: 'root', password: ENCODED, crypted: false }],
  ['guest-exec', { path: 'passwd', arg: ['root'], 'input-data': ENCODED, env: [`TOKEN=${SECRET}`] }],
  ['guest-file-write', { handle: 7, 'buf-b64': ENCODED }],
  ['guest-ssh-add-authorized-keys', { username: 'root', keys: [SECRET] }],
];

test.each(COMMANDS)('%s, done, failed and repeated', async (command, fargs) => {
  const body = { emu_cmd: command, fargs };
  agent.runGuestCommand = async () => JSON.stringify({ 'out-data': SECRET });
  const keyed = { ...body, idempotency_key: randomUUID() };
  for (const request of [body, keyed, keyed])
    expect((await post('guest-command/', request)).body).toEqual({ [command]: { 'out-data': SECRET } });
  agent.runGuestCommand = async () => {
    throw new VirtkeepError('guest_agent_failed', { domain: 'vm', command, reason: 'no' });
  };
  expect((await post('guest-command/', { ...body, idempotency_key: randomUUID() })).status).toBe(502);
  agent.runGuestCommand = async () => {
    throw new Error(`a fault of the node, with ${SECRET} in its text`);
  };
  const fault = await post('guest-command/', body);
  expect([fault.status >= 500, fault.text.includes(SECRET)]).toEqual([true, false]);
  // refused before anybody was asked
  expect((await post('guest-command/', { ...body, other: SECRET })).status).toBe(400);
  await expectNowhere();
});

const PASSWORD = { login: 'me', password: SECRET };
const OPERATIONS: [string, object][] = [
  ['add-to-ad/', { ...PASSWORD, domainname: 'ad.example.com' }],
  ['rm-from-ad/', PASSWORD],
  ['sysprep/', { unattend: `<Password>${SECRET}</Password>` }],
];

test.each(OPERATIONS)('%s, done, failed and with an idempotency key', async (path, body) => {
  agent.whenStarted = call => agent.succeed(call.request.operationId, { domain: 'ad', restarted: false });
  expect((await post(`${path}?async=1`, { ...body, idempotency_key: randomUUID() })).status).toBe(202);
  await ended(rest, agent.calls.at(-1)!.request.operationId);
  agent.beforeStart = () => {
    throw new VirtkeepError('guest_off', { domain: 'vm', state: 'off' });
  };
  expect((await post(path, body)).status).toBe(409);
  agent.beforeStart = () => {
    throw new Error(`with ${SECRET} in its text`);
  };
  expect((await post(path, body)).status).toBeGreaterThanOrEqual(500);
  agent.beforeStart = () => {};
  expect(agent.calls.at(-1)!.request).toMatchObject(path === 'sysprep/' ? {} : { password: SECRET });
  await expectNowhere();
});

test('each of these stands in the audit, with what it was and how it ended', async () => {
  const records = await audited();
  const [first] = records;
  expect(first).toMatchObject({
    user: { username: 'the-operator' },
    address: '127.0.0.1',
    action: 'POST /api/domains/:id/guest-command/ guest-set-user-password',
    status: 200,
    error: null,
    request: {
      emu_cmd: 'guest-set-user-password',
      fargs: { username: 'root', password: '[redacted]', crypted: false },
    },
  });
  const ofExec = records.filter(record => String(record.action).endsWith(' guest-exec'));
  expect(ofExec.map(record => [record.status, record.error])).toEqual([
    [200, null],
    [200, null],
    [200, null],
    [502, 'guest_agent_failed'],
    [500, 'internal'],
    [400, 'unknown_field'],
  ]);
  expect(ofExec[0]!.request).toEqual({
    emu_cmd: 'guest-exec',
    fargs: { path: 'passwd', arg: ['root'], 'input-data': '[redacted]', env: '[redacted]' },
    timeout: 60,
  });
  expect(ofExec.at(-1)!.request).toEqual({ refused_fields: ['emu_cmd', 'fargs', 'other', 'timeout'] });
  expect(JSON.stringify(records)).not.toMatch(new RegExp(`${SECRET}|${ENCODED}`));
  const joins = records.filter(record => String(record.action).includes('add-to-ad'));
  expect(joins.map(({ status, request }) => [status, (request as { password: string }).password])).toEqual([
    [202, '[redacted]'],
    [409, '[redacted]'],
    [500, '[redacted]'],
  ]);
});

test('an argument that is named as a secret is not kept, the others are', async () => {
  agent.runGuestCommand = async () => '{}';
  const arg = ['-c', `TOKEN=${SECRET} run`, `--password=${SECRET}`];
  await post('guest-command/', { emu_cmd: 'guest-exec', fargs: { path: 'sh', arg } });
  expect((await audited()).at(-1)!.request).toMatchObject({
    fargs: { path: 'sh', arg: ['-c', 'TOKEN=[redacted] run', '--password=[redacted]'] },
  });
  await expectNowhere();
});

test('a command too long to be written down is known by its name all the same', async () => {
  agent.runGuestCommand = async () => '{}';
  await post('guest-command/', { fargs: { path: 'x'.repeat(20_000) }, emu_cmd: 'guest-exec' });
  expect((await audited()).at(-1)).toMatchObject({
    action: 'POST /api/domains/:id/guest-command/ guest-exec',
  });
});

test('what asks a guest is written down although it changes nothing; what is known of it is not', async () => {
  const before = (await audited()).length;
  const ask = (path: string) => rest.call('GET', `/api/domains/${domain}/${path}`, { as: 'operator' });
  for (const path of ['available-guest-cmds/', 'guest-info/?refresh', 'ssh-keys/?ssh_user=root'])
    await ask(path);
  for (const path of ['', 'guest-info/', 'guest-info/?refresh=0']) await ask(path);
  const told = (await audited()).slice(before);
  expect(told.map(({ action }) => action)).toEqual([
    'GET /api/domains/:id/available-guest-cmds/',
    'GET /api/domains/:id/guest-info/',
    'GET /api/domains/:id/ssh-keys/',
  ]);
  expect(told[2]).toMatchObject({ path: `/api/domains/${domain}/ssh-keys/?ssh_user=root`, entity: domain });
});
