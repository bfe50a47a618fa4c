/**
 * The commands of guest agents over REST, from the client's socket to a real guest: the specification's requests word for
 * word (2.6, 4.4), then every command of its list that the guest offers, then the command line. Effects are looked for in the
 * guest by virsh.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Guest } from '../lab/guest.ts';
import { NODE_BIN, ROOT } from '../lab/paths.ts';
import type { Rest } from '../lab/rest.ts';
import { waitFor } from '../lab/run.ts';
import { startWorld, type World } from '../lab/world.ts';

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

const EMPTY_DRIVE = "<disk type='file' device='cdrom'><target dev='sdc' bus='scsi'/><readonly/></disk>";
const SECRET = 'S3cr3t-of-a-real-guest';
const KEY = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@home';
const base64 = (data: string | Buffer) => Buffer.from(data).toString('base64');

let world: World;
let guest: Guest;
let id: string;
let operator: Rest;
let images: string;
let toolsImage: string;

beforeAll(async () => {
  images = mkdtempSync(join(tmpdir(), 'virtkeep-tools-'));
  toolsImage = join(images, 'guest-tools.iso');
  writeFileSync(toolsImage, Buffer.alloc(1024 * 1024, 1));
  world = await startWorld({
    controller: true,
    agentSettings: { guest: { tools_image: toolsImage } },
    controllerSettings: { api: { emulator_name: 'qemu' } },
  });
  guest = await world.defineTiny({ name: 'asked', devices: EMPTY_DRIVE });
  await guest.start();
  await guest.waitForAgent();
  id = await world.known(guest);
  const connected = async () => (await record()).guest_utils.qemu_state === true;
  await waitFor('the controller to know that the guest answers', connected, 120_000);
  const user = { username: 'operator', password: 'a long password', role: 'operator' };
  await world.rest.ok('POST', '/api/users/', user);
  operator = await world.controller.anonymous().login(user.username, user.password);
});
afterAll(async () => {
  await world?.stop();
  rmSync(images, { recursive: true, force: true });
});

const record = () => world.rest.get<Json>(`/api/domains/${id}/`);
const ask = (emu_cmd: string, fargs: object = {}, timeout = 60) =>
  operator.send<Json>('POST', `/api/domains/${id}/guest-command/`, { emu_cmd, fargs, timeout });
async function run(emu_cmd: string, fargs: object = {}, timeout = 60): Promise<Json> {
  const { status, body } = await ask(emu_cmd, fargs, timeout);
  if (status !== 200) throw new Error(`${emu_cmd}: ${status} ${JSON.stringify(body)}`);
  expect(Object.keys(body)).toEqual([emu_cmd]);
  return body[emu_cmd];
}

/** Sends a request as it was recorded from a client. */
async function send(recorded: string): Promise<{ status: number; body: string }> {
  const filled = recorded.replace('<vm_id>', id).replace('<ACCESS_TOKEN>', operator.token!);
  const [head, body = ''] = filled.split('\n\n', 2) as [string, string?];
  const { hostname, port, host } = new URL(world.controller.url);
  const lines = [`Host: ${host}`, 'Connection: close', `Content-Length: ${Buffer.byteLength(body)}`];
  const ca = readFileSync(world.controller.caFile);
  const socket = connect({ host: hostname, port: Number(port), ca });
  socket.write([...head.split('\n'), ...lines, '', body].join('\r\n'));
  const answer = await text(socket);
  return { status: Number(answer.split(' ', 2)[1]), body: answer.slice(answer.indexOf('\r\n\r\n') + 4) };
}

describe('the requests of the specification', () => {
  test('available-guest-cmds', async () => {
    const { status, body } = await send(`GET /api/domains/<vm_id>/available-guest-cmds/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>

`);
    const answer = JSON.parse(body);
    expect(status).toBe(200);
    expect(Object.keys(answer)).toEqual(['emu_available_cmds', 'qemu_available_cmds']);
    expect(answer.qemu_available_cmds).toEqual(answer.emu_available_cmds);
    const { supported_commands: told } = await guest.agent<Json>('guest-info');
    const enabled = told.filter((one: Json) => one.enabled).map((one: Json) => one.name);
    expect([...answer.emu_available_cmds].sort()).toEqual(enabled.sort());
  });

  test('guest-exec with path and arg', async () => {
    const { status, body } = await send(`POST /api/domains/<vm_id>/guest-command/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>
Content-Type: application/json

{"emu_cmd": "guest-exec", "fargs": {"path": "ls", "arg": ["/mnt"]}}`);
    expect([status, JSON.parse(body)]).toEqual([
      200,
      { 'guest-exec': { exitcode: 0, 'out-data': 'vda\n', exited: true } },
    ]);
  });

  test('guest-get-time, an integer of nanoseconds in the text itself', async () => {
    const { status, body } = await send(`POST /api/domains/<vm_id>/guest-command/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>
Content-Type: application/json

{"qemu_cmd": "guest-get-time", "fargs": {}}`);
    expect([status, body]).toEqual([200, expect.stringMatching(/^\{"guest-get-time":\d{18,19}\}$/)]);
    const nanoseconds = BigInt(/\d{18,19}/.exec(body)![0]);
    const { return: now } = JSON.parse(
      await world.node.virsh('qemu-agent-command', guest.name, '{"execute":"guest-get-time"}'),
    ) as { return: number };
    const behindMs = now / 1e6 - Number(nanoseconds / 1_000_000n);
    expect([behindMs >= -1, behindMs < 120_000]).toEqual([true, true]);
  });

  test('guest-get-osinfo', async () => {
    const { status, body } = await send(`POST /api/domains/<vm_id>/guest-command/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>
Content-Type: application/json

{"emu_cmd": "guest-get-osinfo", "fargs": {}}`);
    const told = await guest.agent<Json>('guest-get-osinfo');
    expect([status, JSON.parse(body)]).toEqual([200, { 'guest-get-osinfo': told }]);
    for (const value of Object.values(told)) expect(typeof value).toBe('string');
    expect(told).toMatchObject({ id: 'tiny', 'pretty-name': 'Tiny test guest', machine: 'x86_64' });
  });
});

/** What the tiny guest has nothing for, its own agent says. */
const refusedByAgent = (key: string) => key === 'guest_agent_failed' || key === 'guest_command_disabled';
/** Whether a command succeeded; for those that this kernel may not be able to. */
async function may(command: string, fargs: object = {}): Promise<boolean> {
  const { status, body } = await ask(command, fargs);
  if (status !== 200) expect(body.errors.map((one: Json) => refusedByAgent(one.msg_key))).toEqual([true]);
  return status === 200;
}

/** Calls each command and sees its effect. In this order: the last ones end the guest. */
const EFFECTS: Record<string, () => Promise<void>> = {
  'guest-sync': async () => expect(await run('guest-sync', { id: 4711 })).toBe(4711),
  'guest-sync-delimited': async () => expect(await run('guest-sync-delimited', { id: -5 })).toBe(-5),
  'guest-ping': async () => expect(await run('guest-ping')).toEqual({}),
  'guest-info': async () => {
    const { version } = await guest.agent<Json>('guest-info');
    expect(await run('guest-info')).toMatchObject({ version });
  },
  'guest-get-time': async () => expect(await run('guest-get-time')).toBeGreaterThan(1e18),
  'guest-set-time': async () => {
    const time = 1_500_000_000_000_000_000;
    await may('guest-set-time', { time });
    expect(Number(await guest.sh('date +%s'))).toBeLessThan(1_500_010_000);
  },
  'guest-get-osinfo': async () => expect((await run('guest-get-osinfo')).id).toBe('tiny'),
  'guest-get-host-name': async () => {
    await guest.sh('hostname seen-by-rest');
    expect(await run('guest-get-host-name')).toEqual({ 'host-name': 'seen-by-rest' });
  },
  'guest-get-timezone': async () => expect(await run('guest-get-timezone')).toMatchObject({ offset: 0 }),
  'guest-get-users': async () => expect(await run('guest-get-users')).toEqual([]),
  'guest-get-vcpus': async () => expect(await run('guest-get-vcpus')).toMatchObject([{ online: true }]),
  'guest-set-vcpus': async () =>
    expect(await run('guest-set-vcpus', { vcpus: [{ 'logical-id': 0, online: true }] })).toBe(1),
  'guest-get-memory-blocks': async () => void (await may('guest-get-memory-blocks')),
  'guest-get-memory-block-info': async () => void (await may('guest-get-memory-block-info')),
  'guest-set-memory-blocks': async () => void (await may('guest-set-memory-blocks', { 'mem-blks': [] })),
  'guest-get-devices': async () => void (await may('guest-get-devices')),
  'guest-get-disks': async () =>
    expect(await run('guest-get-disks')).toContainEqual(expect.objectContaining({ name: '/dev/vda' })),
  'guest-get-fsinfo': async () =>
    expect(await run('guest-get-fsinfo')).toMatchObject([{ mountpoint: '/mnt/vda', type: 'ext4' }]),
  'guest-network-get-interfaces': async () =>
    expect(await run('guest-network-get-interfaces')).toContainEqual(expect.objectContaining({ name: 'lo' })),
  'guest-exec': async () => {
    const made = { path: 'touch', arg: ['/tmp/made by rest'] };
    expect(await run('guest-exec', made)).toEqual({ exitcode: 0, 'out-data': '', exited: true });
    expect(await guest.sh('ls /tmp')).toContain('made by rest');
  },
  'guest-exec-status': async () => {
    const script = 'while [ ! -e /tmp/go ]; do sleep 0.1; done; echo gone; exit 7';
    const started = await run('guest-exec', { path: 'sh', arg: ['-c', script] }, 1);
    expect(started).toEqual({ pid: expect.any(Number), exited: false });
    const { pid } = started;
    expect(await run('guest-exec-status', { pid })).toEqual({ exited: false });
    await guest.sh('touch /tmp/go');
    const ended = await waitFor(
      'the end of the program',
      async () => {
        const now = await run('guest-exec-status', { pid });
        return now.exited ? now : undefined;
      },
      120_000,
    );
    expect(ended).toEqual({ exitcode: 7, 'out-data': 'gone\n', exited: true });
    expect(await run('guest-exec-status', { pid })).toEqual(ended);
  },
  'guest-file-open': () => useFile(),
  'guest-file-write': () => useFile(),
  'guest-file-flush': () => useFile(),
  'guest-file-seek': () => useFile(),
  'guest-file-read': () => useFile(),
  'guest-file-close': () => useFile(),
  'guest-fsfreeze-status': async () => expect(await run('guest-fsfreeze-status')).toBe('thawed'),
  'guest-fsfreeze-freeze': async () => {
    expect(await run('guest-fsfreeze-freeze')).toBe(1);
    expect(await guest.agent('guest-fsfreeze-status')).toBe('frozen');
    const refused = await ask('guest-exec', { path: 'true' });
    expect([refused.status, refused.body.errors[0].msg_key]).toEqual([409, 'guest_frozen']);
    const shown = async () => (await record()).guest_info.frozen_since !== null;
    await waitFor('the freeze in the record', shown, 120_000);
    expect(await run('guest-fsfreeze-thaw')).toBe(1);
  },
  'guest-fsfreeze-freeze-list': async () => {
    expect(await run('guest-fsfreeze-freeze-list', { mountpoints: ['/mnt/vda'] })).toBe(1);
    expect(await run('guest-fsfreeze-thaw')).toBe(1);
  },
  'guest-fsfreeze-thaw': async () => {
    expect(await run('guest-fsfreeze-thaw')).toBe(0);
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
    const shown = async () => (await record()).guest_info.frozen_since === null;
    await waitFor('the end of the freeze in the record', shown, 120_000);
  },
  'guest-fstrim': async () => void (await may('guest-fstrim')),
  'guest-set-user-password': async () => {
    const before = await guest.sh('grep ^root: /etc/shadow');
    const fargs = { username: 'root', password: base64(SECRET), crypted: false };
    expect(await run('guest-set-user-password', fargs)).toEqual({});
    expect(await guest.sh('grep ^root: /etc/shadow')).not.toBe(before);
  },
  'guest-ssh-add-authorized-keys': async () => {
    expect(await run('guest-ssh-add-authorized-keys', { username: 'root', keys: [KEY] })).toEqual({});
    expect(await guest.sh('cat /root/.ssh/authorized_keys')).toContain(KEY);
  },
  'guest-ssh-get-authorized-keys': async () => {
    expect(await run('guest-ssh-get-authorized-keys', { username: 'root' })).toEqual({ keys: [KEY] });
    const listed = await operator.get(`/api/domains/${id}/ssh-keys/?ssh_user=root`);
    expect(listed).toEqual({ ssh_user: 'root', keys: [KEY] });
  },
  'guest-ssh-remove-authorized-keys': async () => {
    expect(await run('guest-ssh-remove-authorized-keys', { username: 'root', keys: [KEY] })).toEqual({});
    expect(await guest.sh('cat /root/.ssh/authorized_keys')).not.toContain(KEY);
  },
  'guest-suspend-disk': () => sleepAndWake('guest-suspend-disk'),
  'guest-suspend-hybrid': () => sleepAndWake('guest-suspend-hybrid'),
  'guest-suspend-ram': () => sleepAndWake('guest-suspend-ram'),
  'guest-shutdown': async () => {
    expect(await run('guest-shutdown', { mode: 'powerdown' })).toEqual({});
    await waitFor('the end of the guest', async () => (await guest.state()) === 'shut off', 120_000);
    const off = await ask('guest-ping');
    expect([off.status, off.body.errors[0].msg_key]).toEqual([409, 'guest_off']);
  },
};

async function useFile(): Promise<void> {
  const handle = await run('guest-file-open', { path: '/tmp/by-rest', mode: 'w+' });
  const written = await run('guest-file-write', { handle, 'buf-b64': base64(`hello ${SECRET}`) });
  expect(written).toEqual({ count: 6 + SECRET.length, eof: false });
  expect(await run('guest-file-flush', { handle })).toEqual({});
  expect(await guest.sh('cat /tmp/by-rest')).toContain('hello');
  const sought = await run('guest-file-seek', { handle, offset: 0, whence: 'set' });
  expect(sought).toMatchObject({ position: 0 });
  const read = await run('guest-file-read', { handle, count: 5 });
  expect(read).toMatchObject({ count: 5, 'buf-b64': base64('hello') });
  expect(await run('guest-file-close', { handle })).toEqual({});
  const closed = await ask('guest-file-read', { handle });
  expect([closed.status, closed.body.errors[0].msg_key]).toEqual([502, 'guest_agent_failed']);
}

/** A guest that cannot sleep says so; one that does is woken. */
async function sleepAndWake(command: string): Promise<void> {
  if (!(await may(command))) return;
  const asleep = async () => (await guest.state()) === 'pmsuspended';
  await waitFor(`${command} to be done`, asleep, 120_000);
  await world.node.virsh('dompmwakeup', guest.name);
  await guest.waitForAgent();
  expect(await run('guest-ping')).toEqual({});
  // a kernel that was asleep does not switch this machine off any more
  await guest.destroy();
  await guest.start();
  await guest.waitForAgent();
}

describe('what the guest tells', () => {
  test('stands in the record of the VM, and is asked for anew', async () => {
    const told = async () => (await record()).guest_utils.hostname === 'tiny';
    await waitFor('what the guest told first', told, 120_000);
    expect((await record()).guest_info).toMatchObject({
      qemu_state: true,
      hostname: 'tiny',
      os: { id: 'tiny', 'pretty-name': 'Tiny test guest' },
      file_systems: [{ mountpoint: '/mnt/vda', type: 'ext4' }],
      frozen_since: null,
    });
    await guest.sh('hostname tinier');
    const fresh = await operator.get<Json>(`/api/domains/${id}/guest-info/?refresh`);
    expect(fresh.hostname).toBe('tinier');
    const shown = async () => (await record()).guest_utils.hostname === 'tinier';
    await waitFor('the new name in the record', shown, 120_000);
  });
});

function virtkeep(args: string[], input: string | Buffer = ''): Promise<[number | null, string, string]> {
  const main = join(ROOT, 'controller', 'cli', 'src', 'main.ts');
  const env = {
    PATH: process.env.PATH,
    VIRTKEEP_URL: world.controller.url,
    VIRTKEEP_TOKEN: operator.token,
    VIRTKEEP_CA: world.controller.caFile,
  };
  const child = spawn(NODE_BIN, [main, ...args], { env, cwd: world.dir });
  child.stdin.end(input);
  const ended = new Promise<number | null>(resolve => child.on('close', resolve));
  return Promise.all([ended, text(child.stdout), text(child.stderr)]);
}

describe('the command line', () => {
  test('vm exec: stdin, both streams, exit code', async () => {
    const script = 'tr a-z A-Z; echo "$1" >&2; exit 41';
    const ran = await virtkeep(['vm', 'exec', 'asked', '--', 'sh', '-c', script, 'sh', '$x y'], 'input é');
    expect(ran).toEqual([41, 'INPUT é', '$x y\n']);
  });

  test('vm exec of what runs longer than it is waited for', async () => {
    const args = ['vm', 'exec', 'asked', '--timeout', '1', '--', 'sleep', '600'];
    const [code, stdout, stderr] = await virtkeep(args);
    expect([code, stdout, stderr]).toEqual([124, '', expect.stringMatching(/as process \d+/)]);
    const pid = /process (\d+)/.exec(stderr)![1];
    expect(await guest.sh(`tr '\\0' ' ' < /proc/${pid}/cmdline`)).toContain('sleep 600');
    await guest.sh(`kill ${pid}`);
  });

  test('vm cp in both directions, byte for byte', async () => {
    const data = Buffer.from(Array.from({ length: 700_001 }, (_, index) => (index * 7919) % 256));
    writeFileSync(join(world.dir, 'there.bin'), data);
    expect((await virtkeep(['vm', 'cp', 'there.bin', 'asked:/tmp/']))[0]).toBe(0);
    expect(await guest.sh('wc -c < /tmp/there.bin')).toContain('700001');
    expect((await virtkeep(['vm', 'cp', 'asked:/tmp/there.bin', 'back.bin']))[0]).toBe(0);
    expect(readFileSync(join(world.dir, 'back.bin')).equals(data)).toBe(true);
    const [code, , stderr] = await virtkeep(['vm', 'cp', 'asked:/none', 'none']);
    expect([code, stderr]).toEqual([1, expect.stringContaining('No such file')]);
  });

  test('vm guest-info', async () => {
    const [code, stdout] = await virtkeep(['vm', 'guest_info', 'asked', '--refresh']);
    expect([code, stdout]).toEqual([0, expect.stringContaining('Tiny test guest')]);
  });
});

describe('operations', () => {
  const act = (path: string, body: object = {}) =>
    operator.send<Json>('POST', `/api/domains/${id}/${path}/`, body);
  const refusal = async (path: string, body: object = {}) => {
    const { status, body: answer } = await act(path, body);
    return [status, answer.errors?.[0].msg_key];
  };

  test('set-hostname, to a name and to the one of the VM', async () => {
    const named = await act('set-hostname', { hostname: 'named-by-rest' });
    const result = { hostname: 'named-by-rest', method: 'agent', restarted: false };
    expect([named.status, named.body]).toEqual([200, result]);
    expect(await guest.sh('hostname')).toContain('named-by-rest');
    expect(await virtkeep(['vm', 'set-hostname', 'asked'])).toEqual([
      0,
      'asked: host name asked\n',
      expect.any(String),
    ]);
    expect(await guest.sh('hostname')).toContain('asked');
    expect(await refusal('set-hostname', { hostname: '-no-' })).toEqual([400, 'invalid_field']);
  });

  test('ssh-keys, added, listed and removed', async () => {
    const added = await act('ssh-keys', { ssh_user: 'root', ssh_key: KEY });
    expect([added.status, added.body]).toEqual([200, { keys: [KEY], method: 'agent' }]);
    expect(await guest.sh('cat /root/.ssh/authorized_keys')).toContain(KEY);
    expect((await virtkeep(['vm', 'ssh-key', 'list', 'asked', 'root']))[1]).toBe(`${KEY}\n`);
    const [code] = await virtkeep(['vm', 'ssh-key', 'remove', 'asked', 'root', '-'], KEY);
    expect([code, await guest.sh('cat /root/.ssh/authorized_keys')]).toEqual([
      0,
      expect.not.stringContaining(KEY),
    ]);
    expect(await refusal('ssh-keys', { ssh_user: 'root', ssh_key: 'garbage' })).toEqual([
      400,
      'ssh_key_invalid',
    ]);
    const bad = await act('ssh-keys', { ssh_user: 'a b', ssh_key: KEY });
    expect([bad.status, bad.body.errors[0].field]).toEqual([400, 'ssh_user']);
  });

  test('the guest tools image is mounted and unmounted', async () => {
    const mounted = await act('attach-guest-tools-iso');
    expect([mounted.status, mounted.body]).toEqual([200, { target_dev: 'sdc', path: toolsImage }]);
    expect(await guest.sh('head -c 4 /dev/sr0 | od -An -tx1')).toContain('01 01 01 01');
    const [code, stdout] = await virtkeep(['vm', 'guest-tools', 'detach', 'asked']);
    expect([code, stdout]).toEqual([0, 'asked: guest tools unmounted from sdc\n']);
    expect(await guest.xml()).not.toContain(toolsImage);
    expect(await refusal('detach-guest-tools-iso')).toEqual([409, 'guest_tools_unavailable']);
  });

  test('what this guest cannot do is refused, with nothing of the password kept', async () => {
    const login = { login: 'Administrator', password: SECRET };
    const [status, key] = await refusal('add-to-ad', { ...login, domainname: 'ad.example.com' });
    expect([status, ['guest_packages_missing', 'guest_os_unsupported'].includes(key)]).toEqual([409, true]);
    expect((await refusal('rm-from-ad', login))[0]).toBeGreaterThanOrEqual(400);
    const args = ['vm', 'join-domain', 'asked', 'ad.example.com', '--login', 'Administrator'];
    expect((await virtkeep(args, SECRET))[0]).toBe(5);
    expect(await refusal('sysprep', { unattend: SECRET })).toEqual([409, 'guest_os_unsupported']);
    expect((await refusal('prepare'))[0]).toBe(409);
  });
});

describe('an argument that is wrong', () => {
  test.each<[string, object, string]>([
    ['guest-exec', {}, 'path'],
    ['guest-exec', { path: 'ls', arg: 'x' }, 'arg'],
    ['guest-exec', { path: 'ls', args: [] }, 'args'],
    ['guest-file-read', { handle: 'x' }, 'handle'],
    ['guest-set-user-password', { username: 'root', password: SECRET, crypted: false }, 'password'],
  ])('%s %j is named', async (command, fargs, field) => {
    const { status, body } = await ask(command, fargs);
    expect([status, body.errors]).toEqual([
      400,
      [expect.objectContaining({ msg_key: 'guest_argument_invalid', field })],
    ]);
    expect(JSON.stringify(body)).not.toContain(SECRET);
  });

  test('a command that the agent does not know', async () => {
    const { status, body } = await ask('guest-brew-coffee');
    expect([status, body.errors[0].msg_key]).toEqual([404, 'guest_command_unknown']);
  });
});

describe('every command of the specification that the guest offers', () => {
  test.each(Object.keys(EFFECTS))('%s', async command => {
    await EFFECTS[command]!();
  });

  test('there is no other', () => {
    const listed = `guest-ssh-remove-authorized-keys, guest-ssh-add-authorized-keys, guest-ssh-get-authorized-keys,
      guest-get-devices, guest-get-osinfo, guest-get-timezone, guest-get-users, guest-get-host-name, guest-exec,
      guest-exec-status, guest-get-memory-block-info, guest-set-memory-blocks, guest-get-memory-blocks,
      guest-set-user-password, guest-get-fsinfo, guest-get-disks, guest-set-vcpus, guest-get-vcpus,
      guest-network-get-interfaces, guest-suspend-hybrid, guest-suspend-ram, guest-suspend-disk, guest-fstrim,
      guest-fsfreeze-thaw, guest-fsfreeze-freeze-list, guest-fsfreeze-freeze, guest-fsfreeze-status, guest-file-flush,
      guest-file-seek, guest-file-write, guest-file-read, guest-file-close, guest-file-open, guest-shutdown, guest-info,
      guest-set-time, guest-get-time, guest-ping, guest-sync, guest-sync-delimited`;
    expect(Object.keys(EFFECTS).sort()).toEqual(listed.split(/,\s+/).sort());
  });
});

test('no secret of all this is in a file of the controller or the agent', () => {
  const files = [world.controller.dir, world.agent.dir].flatMap(dir =>
    readdirSync(dir, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(entry => join(entry.parentPath, entry.name)),
  );
  expect(files.some(file => file.endsWith('controller.db'))).toBe(true);
  const kept = (file: string) => readFileSync(file, 'latin1');
  const found = files.filter(file => [SECRET, base64(SECRET)].some(secret => kept(file).includes(secret)));
  expect(found).toEqual([]);
});
