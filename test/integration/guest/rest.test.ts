/**
 * The commands of guest agents over REST, from the client's socket to a real Debian guest: the specification's requests word for
 * word (2.6, 4.4), the command line, operations.
 */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Guest } from '../../lab/guest.ts';
import { NODE_BIN, programFile } from '../../lab/paths.ts';
import type { Rest } from '../../lab/rest.ts';
import { waitFor } from '../../lab/run.ts';
import type { World } from '../../lab/world.ts';
import { KEY, SECRET } from './effects.ts';
import { GuestRestLab, type Json } from './rest-lab.ts';

let lab: GuestRestLab;
let world: World;
let guest: Guest;
let id: string;
let operator: Rest;

beforeAll(async () => {
  lab = await GuestRestLab.start('asked');
  ({ world, guest, id, operator } = lab);
});
afterAll(() => lab?.stop());

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
    expect([...answer.emu_available_cmds].sort()).toEqual([...lab.offered].sort());
  });

  test('guest-exec with path and arg', async () => {
    const recorded = `POST /api/domains/<vm_id>/guest-command/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>
Content-Type: application/json

{"emu_cmd": "guest-exec", "fargs": {"path": "ls", "arg": ["/mnt"]}}`;
    const { status, body } = await send(recorded);
    expect([status, JSON.parse(body)]).toEqual([
      200,
      { 'guest-exec': { exitcode: 0, 'out-data': 'data\n', exited: true } },
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

  const osinfo = async (): Promise<[number, Json]> => {
    const { status, body } = await send(`POST /api/domains/<vm_id>/guest-command/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>
Content-Type: application/json

{"emu_cmd": "guest-get-osinfo", "fargs": {}}`);
    return [status, JSON.parse(body)];
  };
  /** What the guest says of itself to whom is in it. */
  const system = async () => {
    const script =
      '. /etc/os-release; for v in "$NAME" "$VERSION" "$PRETTY_NAME" "$VERSION_ID" "$ID"; do echo "$v"; done';
    const lines = (await guest.sh(`${script}; uname -r; uname -v; uname -m`)).trim().split('\n');
    const fields = [
      'name',
      'version',
      'pretty-name',
      'version-id',
      'id',
      'kernel-release',
      'kernel-version',
      'machine',
    ];
    return Object.fromEntries(fields.map((field, index) => [field, lines[index]]));
  };

  test('guest-get-osinfo', async () => {
    const told = await system();
    expect(told).toMatchObject({ id: 'debian', name: 'Debian GNU/Linux', machine: 'x86_64' });
    const unknown = { variant: '', 'variant-id': '' };
    expect(await osinfo()).toEqual([200, { 'guest-get-osinfo': { ...told, ...unknown } }]);
  });

  test('guest-get-osinfo of a system that has variants: all ten fields', async () => {
    await guest.sh(
      'cp /etc/os-release /tmp; printf \'VARIANT="Lab edition"\\nVARIANT_ID=lab\\n\' >> /etc/os-release',
    );
    const told = { ...(await system()), variant: 'Lab edition', 'variant-id': 'lab' };
    expect(await osinfo()).toEqual([200, { 'guest-get-osinfo': told }]);
    expect(Object.keys(told)).toHaveLength(10);
    await guest.sh('cat /tmp/os-release > /etc/os-release');
  });
});

describe('what the guest tells', () => {
  test('stands in the record of the VM, and is asked for anew', async () => {
    const told = async () => (await lab.record()).guest_utils.hostname === 'lab-guest';
    await waitFor('what the guest told first', told, 120_000);
    expect((await lab.record()).guest_info).toMatchObject({
      qemu_state: true,
      hostname: 'lab-guest',
      os: { id: 'debian', name: 'Debian GNU/Linux' },
      file_systems: expect.arrayContaining([
        expect.objectContaining({ mountpoint: '/', type: 'ext4' }),
        expect.objectContaining({ mountpoint: '/mnt/data', type: 'ext4' }),
      ]),
      frozen_since: null,
    });
    await guest.sh('hostname renamed');
    const fresh = await operator.get<Json>(`/api/domains/${id}/guest-info/?refresh`);
    expect(fresh.hostname).toBe('renamed');
    const shown = async () => (await lab.record()).guest_utils.hostname === 'renamed';
    await waitFor('the new name in the record', shown, 120_000);
  });
});

function virtkeep(args: string[], input: string | Buffer = ''): Promise<[number | null, string, string]> {
  const env = {
    PATH: process.env.PATH,
    VIRTKEEP_URL: world.controller.url,
    VIRTKEEP_TOKEN: operator.token,
    VIRTKEEP_CA: world.controller.caFile,
  };
  const child = spawn(NODE_BIN, [programFile('virtkeep'), ...args], { env, cwd: world.dir });
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
    const runs = async () => (await guest.sh(`tr '\\0' ' ' < /proc/${pid}/cmdline`)).includes('sleep 600');
    await waitFor('the program', runs, 120_000);
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
    expect([code, stdout]).toEqual([0, expect.stringContaining('Debian GNU/Linux')]);
  });
});

describe('operations', () => {
  const act: GuestRestLab['act'] = (...args) => lab.act(...args);
  const refusal = async (path: string, body: object = {}) => {
    const { status, body: answer } = await act(path, body);
    return [status, answer.errors?.[0].msg_key];
  };

  test('set-hostname, to a name and to the one of the VM', async () => {
    const named = await act('set-hostname', { hostname: 'named-by-rest' });
    const result = { hostname: 'named-by-rest', method: 'agent', restarted: false };
    expect([named.status, named.body]).toEqual([200, result]);
    expect(await guest.sh('hostname; cat /etc/hostname')).toBe('named-by-rest\nnamed-by-rest\n');
    expect(await virtkeep(['vm', 'set-hostname', 'asked'])).toEqual([
      0,
      'asked: host name asked\n',
      expect.any(String),
    ]);
    expect(await guest.sh('hostname; cat /etc/hostname')).toBe('asked\nasked\n');
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
    expect([mounted.status, mounted.body]).toEqual([200, { target_dev: 'sdc', path: lab.toolsImage }]);
    expect(await guest.sh('head -c 4 /dev/sr0 | od -An -tx1')).toContain('01 01 01 01');
    const [code, stdout] = await virtkeep(['vm', 'guest-tools', 'detach', 'asked']);
    expect([code, stdout]).toEqual([0, 'asked: guest tools unmounted from sdc\n']);
    expect(await guest.xml()).not.toContain(lab.toolsImage);
    expect(await refusal('detach-guest-tools-iso')).toEqual([409, 'guest_tools_unavailable']);
  });

  test('what this guest cannot do is refused, with nothing of the password kept', async () => {
    const login = { login: 'Administrator', password: SECRET };
    const asked = { ...login, domainname: 'ad.example.com', install_packages: false };
    expect(await refusal('add-to-ad', asked)).toEqual([409, 'guest_packages_missing']);
    expect((await refusal('rm-from-ad', login))[0]).toBeGreaterThanOrEqual(400);
    const args = ['vm', 'join-domain', 'asked', 'ad.example.com', '--login', 'Administrator'];
    expect((await virtkeep([...args, '--no-install'], SECRET))[0]).toBe(5);
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
    const { status, body } = await lab.ask(command, fargs);
    expect([status, body.errors]).toEqual([
      400,
      [expect.objectContaining({ msg_key: 'guest_argument_invalid', field })],
    ]);
    expect(JSON.stringify(body)).not.toContain(SECRET);
  });

  test('a command that the agent does not know', async () => {
    const { status, body } = await lab.ask('guest-brew-coffee');
    expect([status, body.errors[0].msg_key]).toEqual([404, 'guest_command_unknown']);
  });
});

test('no secret of all this is in a file of the controller or the agent', () => {
  expect(lab.filesWith(SECRET)).toEqual([]);
});
