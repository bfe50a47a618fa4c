/** Commands of guest agents over REST (specification 2.6, 4.4), what guests tell, and who may ask them. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { type ErrorKey, type ErrorParams, VirtkeepError } from '@virtkeep/shared/errors';
import { parseExact } from '@virtkeep/shared/exact-json';
import {
  AgentState,
  type Domain,
  GuestInfo,
  PowerState,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { RunGuestCommandRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import type { Role } from '@virtkeep/shared/permissions';
import { makeRestApp, type RestApp } from './app.ts';
import { enrolled, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let agent: FakeAgent;
let vm: Domain;
let asked: RunGuestCommandRequest[];

beforeAll(async () => {
  rest = await makeRestApp();
  ({ agent } = await enrolled(rest, 'n1'));
});
beforeEach(async () => {
  asked = [];
  vm = await known();
  answerWith('{}');
});
afterEach(() => {
  agent.freshGuestInfo = undefined;
});
afterAll(() => stopAll(rest));

async function known(domain: Partial<Domain> = {}): Promise<Domain> {
  const made = agent.setDomain(domain);
  await until(async () => (await rest.call('GET', `/api/domains/${made.id}/`)).status === 200);
  return made;
}

function answerWith(answer: string | VirtkeepError): void {
  agent.runGuestCommand = async request => {
    asked.push(request);
    if (typeof answer !== 'string') throw answer;
    return answer;
  };
}

const command = (body: unknown, as: Role = 'operator', query = '') =>
  rest.call('POST', `/api/domains/${vm.id}/guest-command/${query}`, { as, body });
const get = (path: string, as: Role = 'operator') =>
  rest.call('GET', `/api/domains/${vm.id}/${path}`, { as });
const firstError = (answer: { body: { errors: object[] } }) => answer.body.errors[0];

describe('the commands that a guest offers', () => {
  const offer = (name: string, enabled = true) => ({ name, enabled, successResponse: true });
  const path = 'available-guest-cmds/';

  test('are the enabled ones', async () => {
    agent.guestCommands = [offer('guest-exec'), offer('guest-file-open', false), offer('guest-ping')];
    const { status, body } = await get(path);
    expect([status, body]).toEqual([200, { emu_available_cmds: ['guest-exec', 'guest-ping'] }]);
    expect((await get(`${path}?async=1`)).status).toBe(200);
  });

  test('stand under the name of the emulator too when that is configured', async () => {
    agent.guestCommands = [offer('guest-ping')];
    rest.services.config.api.emulator_name = 'qemu';
    const { body } = await get(path);
    delete rest.services.config.api.emulator_name;
    expect(body).toEqual({ emu_available_cmds: ['guest-ping'], qemu_available_cmds: ['guest-ping'] });
  });
});

describe('a command', () => {
  test('guest-exec as the specification has it', async () => {
    const result = { exitcode: 0, 'out-data': 'total 0\n', exited: true };
    answerWith(JSON.stringify(result));
    const fargs = { path: 'ls', arg: ['-l', '/root'] };
    const { status, body } = await command({ emu_cmd: 'guest-exec', fargs });
    expect([status, body]).toEqual([200, { 'guest-exec': result }]);
    expect(asked).toEqual([
      {
        domainId: vm.id,
        command: 'guest-exec',
        argumentsJson: JSON.stringify(fargs),
        timeoutSeconds: 60,
      },
    ]);
  });

  test('guest-get-time answers the nanoseconds digit by digit', async () => {
    answerWith('1795244000123456789');
    const { status, text } = await command({ emu_cmd: 'guest-get-time', fargs: {} });
    expect([status, text]).toEqual([200, '{"guest-get-time":1795244000123456789}']);
  });

  test('guest-get-osinfo answers what the guest told', async () => {
    const info = {
      name: 'Debian GNU/Linux',
      'kernel-release': '6.1.0',
      version: '12 (bookworm)',
      'pretty-name': 'Debian GNU/Linux 12 (bookworm)',
      'version-id': '12',
      'kernel-version': '#1 SMP',
      machine: 'x86_64',
      id: 'debian',
    };
    answerWith(JSON.stringify(info));
    const { body } = await command({ emu_cmd: 'guest-get-osinfo', fargs: {} });
    expect(body).toEqual({ 'guest-get-osinfo': info });
  });

  test('may be spelled as the product does, need no arguments, and is never a task', async () => {
    const { status, body } = await command({ qemu_cmd: 'guest-ping' }, 'operator', '?async=1');
    expect([status, body]).toEqual([200, { 'guest-ping': {} }]);
    expect((await command({ emu_cmd: 'guest-ping', qemu_cmd: 'guest-ping' })).status).toBe(200);
    expect(asked.map(one => one.argumentsJson)).toEqual(['{}', '{}']);
  });

  test('that answers nothing has an empty result; a scalar stays one', async () => {
    answerWith('');
    expect((await command({ emu_cmd: 'guest-shutdown' })).body).toEqual({ 'guest-shutdown': {} });
    answerWith('"thawed"');
    expect((await command({ emu_cmd: 'guest-fsfreeze-status' })).body).toEqual({
      'guest-fsfreeze-status': 'thawed',
    });
    answerWith('0');
    expect((await command({ emu_cmd: 'guest-fsfreeze-thaw' })).body).toEqual({ 'guest-fsfreeze-thaw': 0 });
  });

  test('are given integers digit by digit, and so is the audit', async () => {
    const fargs = parseExact('{"time":1795254421123456789,"id":9007199254740993}');
    expect((await command({ emu_cmd: 'guest-set-time', fargs })).status).toBe(200);
    expect(asked[0]!.argumentsJson).toBe('{"time":1795254421123456789,"id":9007199254740993}');
    const { text } = await rest.call('GET', `/api/audit/?entity=${vm.id}`);
    expect(text).toContain('"fargs":{"time":1795254421123456789,"id":9007199254740993}');
  });

  test('waits as long as it is asked to', async () => {
    await command({ emu_cmd: 'guest-exec', fargs: { path: 'sleep' }, timeout: 600 });
    expect(asked[0]!.timeoutSeconds).toBe(600);
  });

  test.each([
    [{}, 'missing_field', 'emu_cmd'],
    [{ emu_cmd: '' }, 'invalid_field', 'emu_cmd'],
    [{ emu_cmd: 7 }, 'invalid_field', 'emu_cmd'],
    [{ emu_cmd: 'guest ping' }, 'invalid_field', 'emu_cmd'],
    [{ emu_cmd: 'guest-ping', qemu_cmd: 'guest-info' }, 'invalid_field', 'qemu_cmd'],
    [{ emu_cmd: 'guest-ping', fargs: [] }, 'invalid_field', 'fargs'],
    [{ emu_cmd: 'guest-ping', fargs: 'x' }, 'invalid_field', 'fargs'],
    [{ emu_cmd: 'guest-ping', fargs: null }, 'invalid_field', 'fargs'],
    [
      { emu_cmd: 'guest-new', fargs: { a: JSON.parse('['.repeat(2_000) + ']'.repeat(2_000)) } },
      'invalid_field',
      'fargs',
    ],
    [{ emu_cmd: 'guest-ping', timeout: parseExact('9007199254740993') }, 'invalid_field', 'timeout'],
    [{ emu_cmd: 'guest-ping', timeout: 0 }, 'invalid_field', 'timeout'],
    [{ emu_cmd: 'guest-ping', timeout: 601 }, 'invalid_field', 'timeout'],
    [{ emu_cmd: 'guest-ping', timeout: '5' }, 'invalid_field', 'timeout'],
    [{ emu_cmd: 'guest-ping', args: {} }, 'unknown_field', 'args'],
  ])('%j is refused', async (body, msg_key, field) => {
    const answer = await command(body);
    expect([answer.status, firstError(answer)]).toEqual([400, expect.objectContaining({ msg_key, field })]);
    expect(asked).toEqual([]);
  });

  const names = { domain: 'vm', command: 'guest-x' };
  test.each<[ErrorKey, number, ErrorParams]>([
    ['guest_off', 409, { domain: 'vm', state: 'off' }],
    ['guest_no_channel', 409, names],
    ['guest_agent_busy', 409, names],
    ['guest_frozen', 409, names],
    ['guest_command_disabled', 409, names],
    ['guest_command_unknown', 404, names],
    ['guest_process_unknown', 404, { domain: 'vm', pid: 7 }],
    ['guest_agent_failed', 502, { ...names, reason: 'no such file' }],
    ['guest_agent_disconnected', 504, names],
    ['guest_agent_silent', 504, names],
    ['guest_command_timed_out', 504, { ...names, seconds: 5 }],
    ['guest_argument_invalid', 400, { ...names, field: 'path', reason: 'is required' }],
  ])('fails as the node says: %s', async (msgKey, status, params) => {
    const error = new VirtkeepError(msgKey, params);
    answerWith(error);
    const answer = await command({ emu_cmd: 'guest-exec' });
    const field = error.field === undefined ? {} : { field: error.field };
    expect([answer.status, firstError(answer)]).toEqual([
      status,
      { code: error.code, msg_key: msgKey, detail: error.message, ...field },
    ]);
  });

  test('for a guest that is not there, or whose node is away', async () => {
    const missing = await rest.call('POST', `/api/domains/${randomUUID()}/guest-command/`, {
      body: { emu_cmd: 'guest-ping' },
    });
    expect([missing.status, firstError(missing)]).toEqual([
      404,
      expect.objectContaining({ msg_key: 'domain_not_found' }),
    ]);
  });

  test('waits for nobody else: a slow guest holds up its own only', async () => {
    const other = await known();
    const { promise: late, resolve: end } = Promise.withResolvers<string>();
    agent.runGuestCommand = async ({ domainId }) => (domainId === vm.id ? late : '"quick"');
    const slow = command({ emu_cmd: 'guest-fstrim', timeout: 300 });
    for (let index = 0; index < 20; index += 1) {
      const answer = await rest.call('POST', `/api/domains/${other.id}/guest-command/`, {
        body: { emu_cmd: 'guest-ping' },
      });
      expect(answer.body).toEqual({ 'guest-ping': 'quick' });
    }
    expect((await rest.call('GET', '/api/domains/')).status).toBe(200);
    end('{"paths":[]}');
    expect((await slow).body).toEqual({ 'guest-fstrim': { paths: [] } });
  });
});

describe('an idempotency key', () => {
  test('runs a command once and gives its answer again, which is stored nowhere', async () => {
    answerWith('{"exitcode":0,"out-data":"of-the-guest","exited":true,"at":1795244000123456789}');
    const body = { emu_cmd: 'guest-exec', fargs: { path: 'id' }, idempotency_key: randomUUID() };
    const first = await command(body);
    const again = await command(body);
    expect([again.status, again.text, asked.length]).toEqual([200, first.text, 1]);
    const rows = await rest.services.db.selectFrom('idempotency').selectAll().execute();
    expect(JSON.stringify(rows)).not.toContain('of-the-guest');
  });

  test('of a command that was refused is free again', async () => {
    const body = { emu_cmd: 'guest-ping', idempotency_key: randomUUID() };
    answerWith(new VirtkeepError('guest_agent_silent', { domain: 'vm', command: 'guest-ping' }));
    expect((await command(body)).status).toBe(504);
    answerWith('{}');
    expect((await command(body)).status).toBe(200);
  });
});

describe('who may', () => {
  test.each<[string, Role, number]>([
    ['guest-ping', 'administrator', 200],
    ['guest-exec', 'administrator', 200],
    ['guest-get-osinfo', 'operator', 200],
    ['guest-file-open', 'operator', 200],
    ['guest-shutdown', 'operator', 200],
    ['guest-newer-than-us', 'operator', 200],
    ['guest-ping', 'auditor', 403],
    ['guest-exec', 'auditor', 403],
    ['guest-ping', 'backup_service', 403],
    ['guest-exec', 'backup_service', 403],
  ])('%s by the role %s: %i', async (name, role, status) => {
    const answer = await command({ emu_cmd: name }, role);
    expect(answer.status).toBe(status);
    expect(asked.length).toBe(status === 200 ? 1 : 0);
    if (status === 403) expect(firstError(answer)).toMatchObject({ msg_key: 'permission_denied' });
  });

  test('read what a guest told: everybody; ask it: operators', async () => {
    for (const role of ['auditor', 'backup_service'] as const) {
      expect((await get('guest-info/', role)).status).toBe(200);
      expect((await get('guest-info/?refresh', role)).status).toBe(403);
      expect((await get('available-guest-cmds/', role)).status).toBe(403);
      expect((await get('ssh-keys/?ssh_user=root', role)).status).toBe(403);
    }
  });
});

describe('what a guest told', () => {
  const told = GuestInfo.fromPartial({
    refreshed: new Date('2026-01-02T03:04:05.000Z'),
    agentVersion: '7.2.0',
    hostname: 'web-1',
    ipv4: ['192.0.2.7'],
    ipv6: ['2001:db8::7'],
    os: {
      id: 'debian',
      name: 'Debian GNU/Linux',
      prettyName: 'Debian 12',
      versionId: '12',
      machine: 'x86_64',
    },
    fileSystems: [{ name: 'vda1', mountpoint: '/', type: 'ext4', usedBytes: 1_000n, totalBytes: 5_000n }],
    users: [{ name: 'root', loginTime: new Date('2026-01-01T00:00:00.000Z') }],
  });
  const record = {
    qemu_state: true,
    refreshed: '2026-01-02T03:04:05.000Z',
    agent_version: '7.2.0',
    hostname: 'web-1',
    ipv4: ['192.0.2.7'],
    ipv6: ['2001:db8::7'],
    os: {
      id: 'debian',
      name: 'Debian GNU/Linux',
      'pretty-name': 'Debian 12',
      'version-id': '12',
      machine: 'x86_64',
      version: '',
      variant: '',
      'variant-id': '',
      'kernel-release': '',
      'kernel-version': '',
    },
    file_systems: [{ name: 'vda1', mountpoint: '/', type: 'ext4', used_bytes: 1000, total_bytes: 5000 }],
    users: [{ name: 'root', login_time: '2026-01-01T00:00:00.000Z' }],
    frozen_since: null,
  };

  test('stands in its record, shortly in lists, and alone', async () => {
    vm = await known({ guestInfo: told });
    const whole = (await get('')).body;
    const utils = { qemu_state: true, version: '7.2.0', hostname: 'web-1', ipv4: ['192.0.2.7'] };
    expect([whole.guest_utils, whole.guest_info]).toEqual([utils, record]);
    const { results } = (await rest.call('GET', `/api/domains/?name=${vm.name}`)).body;
    expect([results[0].guest_utils, 'guest_info' in results[0]]).toEqual([utils, false]);
    expect((await get('guest-info/')).body).toEqual(record);
  });

  test('is asked for anew', async () => {
    vm = await known({ guestInfo: told });
    agent.freshGuestInfo = { ...told, hostname: 'web-2', frozenSince: new Date('2026-01-02T00:00:00.000Z') };
    const { body } = await get('guest-info/?refresh=1');
    expect(body).toEqual({ ...record, hostname: 'web-2', frozen_since: '2026-01-02T00:00:00.000Z' });
    expect((await get('guest-info/?refresh=0')).body).toEqual(record);
  });

  test('is nothing at first; an off guest has no addresses', async () => {
    vm = await known({ powerState: PowerState.OFF, agentState: AgentState.DISCONNECTED });
    expect((await get('guest-info/')).body).toEqual({
      ...record,
      qemu_state: false,
      refreshed: null,
      agent_version: null,
      hostname: null,
      ipv4: [],
      ipv6: [],
      os: null,
      file_systems: [],
      users: [],
    });
    vm = await known({
      guestInfo: told,
      powerState: PowerState.OFF,
      agentState: AgentState.DISCONNECTED,
    });
    expect((await get('')).body.guest_utils).toEqual({
      qemu_state: false,
      version: '7.2.0',
      hostname: 'web-1',
      ipv4: [],
    });
  });
});
