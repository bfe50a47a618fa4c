/** The controller as a process: its certificate, what a crash leaves, how it stops, its command line. */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { Agent, get } from 'node:https';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { ChangeFeed } from '../../../controller/src/services/journal/changes.ts';
import { EventService } from '../../../controller/src/services/journal/events.ts';
import { TaskService } from '../../../controller/src/services/tasks/tasks.ts';
import type { Database } from '../../../controller/src/store/schema.ts';
import { makeControllerDatabase } from '../../../controller/src/store/test-database.ts';
import { controllerArgv, type LabController, makeController } from '../../lab/controller.ts';
import { ROOT } from '../../lab/paths.ts';

// Processes are started, on machines that may be busy.

const PASSWORD = 'a sound password';
let directory: string;
let controller: LabController;
let database: Awaited<ReturnType<typeof makeControllerDatabase>>;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-process-'));
  database = await makeControllerDatabase(join(directory, 'state'));
  controller = await makeController({ dir: directory, password: PASSWORD, settings: database.settings });
  await controller.daemon.start();
});

afterAll(async () => {
  await controller.daemon.stop();
  await database.release();
  rmSync(directory, { recursive: true });
});

function run(input: string, ...argv: string[]) {
  const [program, ...base] = controllerArgv(directory);
  return spawnSync(program, [...base, ...argv], { input, encoding: 'utf8' });
}

test('the certificate made at first start is verified by the CA, by name and by address', async () => {
  const rest = await controller.admin();
  expect((await rest.send('GET', '/api/tasks/')).status).toBe(200);
  rest.token = undefined;
  expect((await rest.send('GET', '/api/tasks/')).status).toBe(401);
});

test('its secrets are readable by their owner only', () => {
  const isAlone = database.target.kind === 'sqlite';
  // those of several are in the database, sealed with the last one
  const files = isAlone ? ['controller.db', 'jwt.key', 'pki/ca.key'] : ['cluster.key'];
  files.push('pki/server.pem');
  for (const name of files) {
    expect([name, statSync(join(directory, 'state', name)).mode & 0o077]).toEqual([name, 0]);
  }
});

test('kill -9 loses no user, no token and no task', async () => {
  const rest = await controller.admin();
  await rest.ok('POST', '/api/users/', { username: 'kept', password: PASSWORD, role: 'operator' });
  const { token } = await rest.ok<{ token: string }>('POST', '/api/tokens/', {
    name: 'kept',
    password: PASSWORD,
  });
  const taskId = await writeTask();
  await controller.daemon.kill();
  await controller.daemon.start();
  rest.token = token;
  expect((await rest.list<{ username: string }>('/api/users/?name=kept')).map(user => user.username)).toEqual(
    ['kept'],
  );
  expect((await rest.task(taskId)).id).toBe(taskId);
});

/** As the server does, beside it: the database takes several processes. */
async function writeTask(): Promise<string> {
  const db = await database.open();
  const changes = new ChangeFeed();
  const tasks = new TaskService(db, changes, new EventService(db, changes));
  const user = { id: newId(), username: 'someone' };
  const task = await tasks.create({ name: 'act', verboseName: 'Act', user, entities: [], multitask: true });
  await db.destroy();
  return task.row.id;
}

test('SIGTERM ends event streams and the process, with 0 and in time', async () => {
  const rest = await controller.admin();
  const agent = new Agent({ rejectUnauthorized: false, keepAlive: true });
  const headers = { authorization: `jwt ${rest.token}` };
  const ended = new Promise<void>((resolve, reject) => {
    get(`${controller.url}/api/events/stream/`, { agent, headers }, response => {
      response.once('data', () => controller.daemon.stop(60_000).catch(reject));
      response.once('end', resolve);
      response.resume();
    }).once('error', reject);
  });
  await ended;
  expect(await controller.daemon.ended).toBe(0);
  expect(controller.daemon.log()).toContain('controller is stopped');
  expect(controller.daemon.log()).not.toContain(PASSWORD);
  agent.destroy();
  await controller.daemon.start();
});

test('SIGTERM while it connects its nodes for the first time ends it in order, and it begins nothing more', async () => {
  await controller.daemon.kill();
  const node = createServer(socket => socket.destroy());
  await new Promise<void>(resolve => node.listen(0, '127.0.0.1', resolve));
  const reached = once(node, 'connection');
  const db = await database.open();
  const id = await addNode(db, `127.0.0.1:${(node.address() as AddressInfo).port}`);
  try {
    const before = controller.daemon.log().length;
    await controller.daemon.spawn();
    await reached;
    await controller.daemon.stop();
    expect(await controller.daemon.ended).toBe(0);
    const states = [
      ...controller.daemon
        .log()
        .slice(before)
        .matchAll(/controller is (\w+)/g),
    ].map(([, state]) => state);
    expect(states.slice(states.indexOf('draining'))).toEqual(['draining', 'closing', 'stopped']);
  } finally {
    await db.deleteFrom('nodes').where('id', '=', id).execute();
    await db.destroy();
    node.close();
    await controller.daemon.start();
  }
});

/** One that has been enrolled. */
async function addNode(db: Database, address: string): Promise<string> {
  const [id, now] = [newId(), new Date().toISOString()];
  const row = {
    id,
    verbose_name: 'away',
    description: '',
    address,
    certificate_fingerprint: '',
    service_mode: 0,
    base_datapool: null,
    inventory_json: '{}',
    operation_sequence: 0,
    last_seen: null,
    created: now,
    modified: now,
  };
  await db.insertInto('nodes').values(row).execute();
  return id;
}

test('a new password from the command line ends earlier logins', async () => {
  const rest = await controller.admin();
  expect(run('weak\n', 'user', 'set-password', 'admin')).toMatchObject({ status: 1 });
  expect(run(`${PASSWORD}!\n`, 'user', 'set-password', 'admin')).toMatchObject({ status: 0 });
  expect((await rest.send('GET', '/api/tasks/')).status).toBe(401);
  await controller.anonymous().login('admin', `${PASSWORD}!`);
});

test('a new password for somebody who is disabled does not let them in', async () => {
  const rest = await controller.anonymous().login('admin', `${PASSWORD}!`);
  const { id } = await rest.ok('POST', '/api/users/', {
    username: 'dismissed',
    password: PASSWORD,
    role: 'operator',
  });
  await rest.ok('PUT', `/api/users/${id}/`, { enabled: false });
  expect(run(`${PASSWORD}?\n`, 'user', 'set-password', 'dismissed')).toMatchObject({
    status: 0,
    stderr: expect.stringContaining('disabled'),
  });
  await expect(controller.anonymous().login('dismissed', `${PASSWORD}?`)).rejects.toThrow('401');
});

test('an enrolment token is printed alone on standard output', () => {
  const { status, stdout } = run('', 'node', 'token', '--name', 'node-1');
  expect([status, stdout]).toEqual([0, expect.stringMatching(/^[\w-]{20,}\.[0-9a-f]{64}\n$/)]);
});

test('root leaves files of their owner, also before the first start', () => {
  const base = mkdtempSync(join(tmpdir(), 'virtkeep-owner-'));
  chmodSync(base, 0o755);
  const state = join(base, 'nested', 'state');
  const settings = join(base, 'controller.yaml');
  writeFileSync(settings, `state_dir: ${state}\n`);
  const [program, main] = controllerArgv(directory);
  const command = (...argv: string[]) =>
    spawnSync(program, [main!, '--config', settings, ...argv], { encoding: 'utf8', cwd: base });
  const owners = () =>
    new Set(
      ['.', ...readdirSync(state, { recursive: true, encoding: 'utf8' })].map(
        name => statSync(join(state, name)).uid,
      ),
    );

  const module = join(ROOT, 'controller', 'src', 'state-owner.ts');
  const first = `const { actAsStateOwner } = await import(${JSON.stringify(module)});
    const { writeFileSync } = await import('node:fs');
    process.umask(0o077);
    actAsStateOwner(${JSON.stringify(state)}, 'daemon');
    writeFileSync(${JSON.stringify(join(state, 'made'))}, '');`;
  spawnSync(program, ['--input-type=module', '-e', first], { encoding: 'utf8' });
  const { uid } = statSync(state);
  expect(statSync(dirname(state)).mode & 0o777).toBe(0o755);
  expect(uid).not.toBe(0);
  expect(owners()).toEqual(new Set([uid]));

  expect(command('node', 'token')).toMatchObject({ status: 0 });
  expect(command('cert', 'issue', '--role', 'reader', '--name', 'monitor')).toMatchObject({ status: 0 });
  expect(owners()).toEqual(new Set([uid]));
  expect(statSync(join(base, 'monitor.key')).uid).toBe(0);
  rmSync(base, { recursive: true });
});

test('wrong command lines end with 64, wrong settings with 78 and their name', () => {
  expect(run('', 'dance')).toMatchObject({ status: 64 });
  expect(run('', '--colour')).toMatchObject({ status: 64 });
  const [program, main] = controllerArgv(directory);
  const settings = join(directory, 'wrong.yaml');
  writeFileSync(settings, 'colour: blue\n');
  const wrong = spawnSync(program, [main!, '--config', settings], { encoding: 'utf8' });
  expect([wrong.status, wrong.stderr]).toEqual([78, expect.stringContaining('colour')]);
});
