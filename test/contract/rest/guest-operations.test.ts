/** Operations inside of guests over REST (specification 4.6): what reaches the node, what is answered, what is refused. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { makeRestApp, type RestApp } from './app.ts';
import { ended, enrolled, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let agent: FakeAgent;
let vm: Domain;

const KEY = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@home';
const JOIN = { domainname: 'ad.example.com', login: 'Administrator', password: 'Pass-w0rd' };

beforeAll(async () => {
  rest = await makeRestApp();
  ({ agent } = await enrolled(rest, 'n1'));
  vm = agent.setDomain({});
  await until(async () => (await rest.call('GET', `/api/domains/${vm.id}/`)).status === 200);
});
beforeEach(() => {
  agent.calls.length = 0;
});
afterEach(() => {
  agent.beforeStart = () => {};
  agent.whenStarted = () => {};
});
afterAll(() => stopAll(rest));

const post = (path: string, body: unknown = {}, as: 'operator' | 'auditor' | 'backup_service' = 'operator') =>
  rest.call('POST', `/api/domains/${vm.id}/${path}`, { as, body });

interface Case {
  path: string;
  body: object;
  kind: string;
  /** Fields of the start call, beside the ids. */
  sent: object;
  result: object;
  /** A node of an earlier version answers. */
  asBefore?: boolean;
}

const CASES: Case[] = [
  {
    path: 'set-hostname/',
    body: {},
    kind: 'set_hostname',
    sent: { hostname: '', restart: true },
    result: { hostname: 'web', method: 'agent', restarted: false },
  },
  {
    path: 'set-hostname/',
    body: { hostname: 'web-1', restart: 0 },
    kind: 'set_hostname',
    sent: { hostname: 'web-1', restart: false, allowNetworkLayers: false },
    result: { hostname: 'web-1', method: 'offline', restarted: false },
  },
  {
    path: 'add-to-ad/',
    body: JOIN,
    kind: 'join_directory',
    sent: {
      directory: 'ad.example.com',
      login: 'Administrator',
      password: 'Pass-w0rd',
      computerName: '',
      organizationalUnit: '',
      restart: true,
      installPackages: undefined,
    },
    result: {
      domain: 'ad.example.com',
      computer_name: 'WEB',
      restarted: true,
      warnings: [],
      installed: ['adcli', 'realmd'],
    },
  },
  {
    path: 'add-to-ad/',
    body: { ...JOIN, install_packages: false },
    kind: 'join_directory',
    sent: { directory: 'ad.example.com', installPackages: false },
    asBefore: true,
    result: { domain: 'ad.example.com', computer_name: 'WEB', restarted: true, warnings: [] },
  },
  {
    path: 'add-to-ad/',
    body: {
      ...{ ...JOIN, newname: 'web-2', oupath: 'OU=Servers,DC=ad,DC=example,DC=com', restart: false },
      install_packages: true,
    },
    kind: 'join_directory',
    sent: {
      installPackages: true,
      computerName: 'web-2',
      organizationalUnit: 'OU=Servers,DC=ad,DC=example,DC=com',
      restart: false,
    },
    result: {
      domain: 'ad.example.com',
      computer_name: 'WEB-2',
      restarted: false,
      warnings: ['SELinux is on'],
      installed: [],
    },
  },
  {
    path: 'rm-from-ad/',
    body: { login: 'Administrator', password: 'Pass-w0rd', restart: 1 },
    kind: 'leave_directory',
    sent: { directory: '', login: 'Administrator', password: 'Pass-w0rd', restart: true },
    result: { domain: 'ad.example.com', restarted: true },
  },
  {
    path: 'ssh-keys/',
    body: { ssh_user: 'root', ssh_key: KEY },
    kind: 'add_ssh_keys',
    sent: { user: 'root', keys: [KEY], allowNetworkLayers: false },
    result: { keys: [KEY], method: 'agent' },
  },
  {
    path: 'ssh-keys/remove/',
    body: { ssh_user: 'root', ssh_key: [KEY, `${KEY}2`], allow_network_layers: true },
    kind: 'remove_ssh_keys',
    sent: { user: 'root', keys: [KEY, `${KEY}2`], allowNetworkLayers: true },
    result: { keys: [], method: 'offline' },
  },
  {
    path: 'sysprep/',
    body: {},
    kind: 'sysprep',
    sent: { mode: 'oobe', action: 'shutdown', generalize: true, vmMode: false, unattend: '' },
    result: { action: 'shutdown' },
  },
  {
    path: 'sysprep/',
    body: { mode: 'audit', action: 'quit', generalize: false, vm_mode: true, unattend: '<unattend/>' },
    kind: 'sysprep',
    sent: { mode: 'audit', action: 'quit', generalize: false, vmMode: true, unattend: '<unattend/>' },
    result: { action: 'quit' },
  },
  {
    path: 'prepare/',
    body: {},
    kind: 'prepare',
    sent: { bootDiskId: '', operations: [], allowNetworkLayers: false },
    result: { operations: ['machine-id'] },
  },
  {
    path: 'prepare/',
    body: { boot_disk: '55555555-5555-4555-8555-555555555555', operations: ['machine-id', 'ssh-hostkeys'] },
    kind: 'prepare',
    sent: {
      bootDiskId: '55555555-5555-4555-8555-555555555555',
      operations: ['machine-id', 'ssh-hostkeys'],
    },
    result: { operations: ['machine-id', 'ssh-hostkeys'] },
  },
  {
    path: 'attach-guest-tools-iso/',
    body: {},
    kind: 'attach_guest_tools',
    sent: {},
    result: { target_dev: 'sda', path: '/tools.iso' },
  },
  {
    path: 'detach-guest-tools-iso/',
    body: {},
    kind: 'detach_guest_tools',
    sent: {},
    result: { target_dev: 'sda' },
  },
];

describe.each(CASES)('$path with $body', ({ path, body, kind, sent, result, asBefore = false }) => {
  test('reaches the node, and answers its result to the byte', async () => {
    agent.whenStarted = call => agent.succeed(call.request.operationId, result, { asBefore });
    const answer = await post(path, body);
    expect([answer.status, JSON.stringify(answer.body)]).toEqual([200, JSON.stringify(result)]);
    expect(agent.calls).toEqual([{ kind, request: expect.objectContaining({ domainId: vm.id, ...sent }) }]);
  });

  test('is a task with async, also with an agent of before', async () => {
    const answer = await post(`${path}?async=1`, body);
    expect([answer.status, answer.body.entity]).toEqual([202, vm.id]);
    const { id, entities } = answer.body._task;
    expect(entities).toEqual({ [vm.id]: 'domain' });
    agent.succeed(id, result, { asBefore: true });
    await ended(rest, id);
    expect((await rest.call('GET', `/api/tasks/${id}/response/`)).body.response).toEqual(result);
  });

  test('is for operators', async () => {
    for (const role of ['auditor', 'backup_service'] as const)
      expect((await post(path, body, role)).status).toBe(403);
    expect(agent.calls).toEqual([]);
  });
});

test.each<[string, object, string, string]>([
  ['set-hostname/', { hostname: '' }, 'invalid_field', 'hostname'],
  ['set-hostname/', { restart: 2 }, 'invalid_field', 'restart'],
  ['set-hostname/', { restart: 'yes' }, 'invalid_field', 'restart'],
  ['add-to-ad/', { ...JOIN, password: undefined }, 'missing_field', 'password'],
  ['add-to-ad/', { ...JOIN, login: undefined }, 'missing_field', 'login'],
  ['add-to-ad/', { ...JOIN, domainname: undefined }, 'missing_field', 'domainname'],
  ['add-to-ad/', { ...JOIN, password: '' }, 'invalid_field', 'password'],
  ['add-to-ad/', { ...JOIN, ou: 'x' }, 'unknown_field', 'ou'],
  ['add-to-ad/', { ...JOIN, install_packages: 'yes' }, 'invalid_field', 'install_packages'],
  ['rm-from-ad/', { login: 'a' }, 'missing_field', 'password'],
  ['ssh-keys/', { ssh_user: 'root' }, 'missing_field', 'ssh_key'],
  ['ssh-keys/', { ssh_key: KEY }, 'missing_field', 'ssh_user'],
  ['ssh-keys/', { ssh_user: 'root', ssh_key: [] }, 'invalid_field', 'ssh_key'],
  ['ssh-keys/', { ssh_user: 'root', ssh_key: 7 }, 'invalid_field', 'ssh_key'],
  ['sysprep/', { mode: 'other' }, 'invalid_field', 'mode'],
  ['sysprep/', { action: 'explode' }, 'invalid_field', 'action'],
  ['prepare/', { boot_disk: 'vda' }, 'invalid_uuid', 'boot_disk'],
  ['prepare/', { operations: [''] }, 'invalid_field', 'operations.0'],
  ['attach-guest-tools-iso/', { path: '/x.iso' }, 'unknown_field', 'path'],
])('%s with %j is refused, and nothing of it is repeated', async (path, body, msg_key, field) => {
  const answer = await post(path, body);
  expect([answer.status, answer.body.errors[0]]).toEqual([400, expect.objectContaining({ msg_key, field })]);
  expect(answer.text).not.toContain(JOIN.password);
  expect(agent.calls).toEqual([]);
});

test('what the node says of a field is said of the field of the request', async () => {
  const names: [string, object, string, string][] = [
    ['add-to-ad/', JOIN, 'directory', 'domainname'],
    ['add-to-ad/', JOIN, 'computer_name', 'newname'],
    ['add-to-ad/', JOIN, 'organizational_unit', 'oupath'],
    ['add-to-ad/', JOIN, 'password', 'password'],
    ['ssh-keys/', { ssh_user: 'a', ssh_key: KEY }, 'user', 'ssh_user'],
    ['ssh-keys/', { ssh_user: 'a', ssh_key: KEY }, 'keys', 'ssh_key'],
    ['prepare/', {}, 'boot_disk_id', 'boot_disk'],
  ];
  for (const [path, body, told, field] of names) {
    agent.beforeStart = () => {
      throw new VirtkeepError('invalid_field', { field: told, reason: 'is wrong' });
    };
    const answer = await post(path, body);
    expect([answer.status, answer.body.errors]).toEqual([
      400,
      [expect.objectContaining({ field, detail: expect.stringContaining(field) })],
    ]);
  }
});

test.each([
  [new VirtkeepError('directory_login_failed', { directory: 'ad', login: 'me' }), 502],
  [new VirtkeepError('directory_not_found', { domain: 'vm', directory: 'ad', reason: 'no DNS' }), 502],
  [
    new VirtkeepError('guest_packages_missing', { domain: 'vm', operation: 'joining', missing: 'realmd' }),
    409,
  ],
  [new VirtkeepError('guest_install_failed', { domain: 'vm', missing: 'realmd', reason: 'no' }), 502],
  [new VirtkeepError('guest_operation_failed', { operation: 'Joining', domain: 'vm', reason: 'no' }), 502],
])('the failure of an operation is the answer, and the task keeps it (%#)', async (error, status) => {
  agent.whenStarted = call => agent.fail(call.request.operationId, error);
  const answer = await post('add-to-ad/', JOIN);
  expect([answer.status, answer.body.errors]).toEqual([
    status,
    [{ code: error.code, msg_key: error.msgKey, detail: error.message }],
  ]);
  const task = await rest.call('GET', `/api/tasks/${agent.calls[0]!.request.operationId}/`);
  expect(task.body.error).toEqual({ code: error.code, msg_key: error.msgKey, detail: error.message });
});

test('a task that failed tells what is left in the guest', async () => {
  const error = new VirtkeepError('directory_login_failed', { directory: 'ad', login: 'me' });
  const left = ['What was installed in the guest of web stays: realmd.', 'The guest keeps the name web-2.'];
  agent.whenStarted = call => agent.fail(call.request.operationId, error, left);
  await post('add-to-ad/', JOIN);
  const task = await rest.call('GET', `/api/tasks/${agent.calls[0]!.request.operationId}/`);
  expect([task.body.status, task.body.detail.message]).toEqual(['FAILED', left.join(' ')]);
});

test('an idempotency key starts an operation once', async () => {
  agent.whenStarted = call => agent.succeed(call.request.operationId, { domain: 'ad', restarted: false });
  const body = { login: 'me', password: 'Pass-w0rd', idempotency_key: randomUUID() };
  const first = await post('rm-from-ad/', body);
  const again = await post('rm-from-ad/', body);
  expect([first.status, again.status, agent.calls.length]).toEqual([200, 200, 1]);
  expect((await post('rm-from-ad/', { ...body, password: 'another' })).status).toBe(409);
});

test('the SSH keys of a user are listed', async () => {
  agent.sshKeys.set('root', [KEY]);
  const list = (query: string) =>
    rest.call('GET', `/api/domains/${vm.id}/ssh-keys/${query}`, { as: 'operator' });
  expect((await list('?ssh_user=root')).body).toEqual({ ssh_user: 'root', keys: [KEY] });
  expect((await list('?ssh_user=nobody')).body).toEqual({ ssh_user: 'nobody', keys: [] });
  expect((await list('')).body).toEqual({ ssh_user: 'root', keys: [KEY] });
  expect((await list('?ssh_user=')).body.errors[0]).toMatchObject({ field: 'ssh_user' });
});

test('what a preparation can do is a call of its own', async () => {
  const operations = [
    { name: 'logfiles', default: true, description: 'Remove many log files' },
    { name: 'ca-certificates', default: false, description: 'Remove CA certificates in the guest' },
  ];
  agent.preparations = operations;
  const list = (id: string) => rest.call('GET', `/api/domains/${id}/prepare-operations/`, { as: 'operator' });
  expect(await list(vm.id)).toMatchObject({ status: 200, body: { operations } });
  expect((await list(randomUUID())).body.errors[0]).toMatchObject({ msg_key: 'domain_not_found' });
});
