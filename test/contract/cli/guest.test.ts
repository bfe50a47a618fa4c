/** The commands for guests, on a scripted REST server: what is sent, printed and returned. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer, json } from 'node:stream/consumers';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { programFile } from '../../lab/paths.ts';

const VM = '11111111-1111-4111-8111-111111111111';
const TASK = '33333333-3333-4333-8333-333333333333';
const MAIN = programFile('virtkeep');
const base64 = (data: string | Buffer) => Buffer.from(data).toString('base64');

type Fargs = Record<string, unknown>;
type Command = (fargs: Fargs, timeout: number | undefined) => unknown;
interface Posted {
  path: string;
  body: Record<string, unknown>;
}

let server: Server;
let home: string;
let commands: Record<string, Command>;
let posted: Posted[];
let asked: { command: string; fargs: Fargs; timeout: number | undefined }[];
let result: object;
/** What the task tells beside its result. */
let remark: string;
let child: ChildProcess;

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'virtkeep-cli-guest-'));
  server = createServer(async (request, response) => {
    const body = request.method === 'POST' ? ((await json(request)) as Record<string, unknown>) : {};
    const { status = 200, answer } = answerTo(request.method ?? '', request.url ?? '', body);
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(answer));
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
});
beforeEach(() => {
  commands = {};
  posted = [];
  asked = [];
  result = {};
  remark = '';
});
afterAll(async () => {
  await new Promise(resolve => server.close(resolve));
  rmSync(home, { recursive: true });
});

function answerTo(
  method: string,
  path: string,
  body: Record<string, unknown>,
): { status?: number; answer: unknown } {
  if (method === 'POST' && path.endsWith('/guest-command/')) return runCommand(body);
  if (method === 'POST') {
    posted.push({ path, body });
    return { status: 202, answer: { entity: VM, _task: { id: TASK } } };
  }
  if (path.endsWith('/response/')) return { answer: { response: result } };
  if (path.startsWith('/api/tasks/'))
    return {
      answer: { id: TASK, verbose_name: 'Act', status: 'SUCCESS', detail: { phase: '', message: remark } },
    };
  if (path.startsWith('/api/domains/?'))
    return { answer: { count: 1, results: [{ id: VM, verbose_name: 'web' }] } };
  return { answer: result };
}

function runCommand(body: Record<string, unknown>): { status?: number; answer: unknown } {
  const { emu_cmd: name, fargs, timeout } = body as { emu_cmd: string; fargs: Fargs; timeout?: number };
  asked.push({ command: name, fargs, timeout });
  try {
    return { answer: { [name]: commands[name]?.(fargs, timeout) ?? {} } };
  } catch (error) {
    return {
      status: 409,
      answer: { errors: [{ code: '40948', detail: (error as Error).message }], detail: '' },
    };
  }
}

interface Ran {
  code: number | null;
  stdout: Buffer;
  stderr: string;
}

/** @param stdin null: it does not end */
function run(args: string[], stdin: string | Buffer | null = ''): Promise<Ran> {
  const { port } = server.address() as AddressInfo;
  const started = spawn(process.execPath, [MAIN, ...args], {
    cwd: home,
    env: {
      PATH: process.env.PATH,
      HOME: home,
      XDG_CONFIG_HOME: home,
      VIRTKEEP_URL: `http://127.0.0.1:${port}`,
      VIRTKEEP_TOKEN: 'tok',
    },
  });
  child = started;
  const out: Buffer[] = [];
  let stderr = '';
  started.stdout.on('data', (chunk: Buffer) => out.push(chunk));
  started.stderr.on('data', chunk => {
    stderr += chunk;
  });
  started.stdin.on('error', () => {}); // it may end before it has read all
  if (stdin !== null) started.stdin.end(stdin);
  return new Promise(resolve =>
    started.on('close', code => resolve({ code, stdout: Buffer.concat(out), stderr })),
  );
}

describe('vm exec', () => {
  const exec = (...args: string[]) => run(['vm', 'exec', 'web', ...args]);

  test('gives the streams and the exit code of the program', async () => {
    commands['guest-exec'] = () => ({ exitcode: 3, 'out-data': 'né\n', 'err-data': 'oops\n', exited: true });
    const { code, stdout, stderr } = await exec('--', 'ls', '-l', '--all', '/a b');
    expect([code, stdout.toString(), stderr]).toEqual([3, 'né\n', 'oops\n']);
    expect(asked).toEqual([
      {
        command: 'guest-exec',
        fargs: { path: 'ls', arg: ['-l', '--all', '/a b'], 'capture-output': true },
        timeout: 20,
      },
    ]);
  });

  test('passes bytes through both ways', async () => {
    const bytes = Buffer.from([0, 255, 10, 13, 128]);
    commands['guest-exec'] = ({ 'input-data': input }) => ({
      exitcode: 0,
      'out-data': input,
      'out-encoding': 'base64',
      exited: true,
    });
    const { code, stdout } = await run(['vms', 'exec', VM, '--', 'cat'], bytes);
    expect([code, stdout]).toEqual([0, bytes]);
  });

  test('waits for a program that takes its time', async () => {
    let looks = 0;
    commands['guest-exec'] = () => ({ pid: 77, exited: false });
    commands['guest-exec-status'] = ({ pid }) =>
      ++looks < 3 ? { exited: false } : { exitcode: 0, 'out-data': `${pid}`, exited: true };
    const { code, stdout } = await exec('--', 'sleep', '30');
    expect([code, stdout.toString(), looks]).toEqual([0, '77', 3]);
  });

  test('with its time over says what goes on', async () => {
    commands['guest-exec'] = () => ({ pid: 77, exited: false });
    commands['guest-exec-status'] = () => ({ exited: false });
    const { code, stderr } = await exec('--timeout', '0.5', '--', 'sleep', '30');
    expect([code, stderr]).toEqual([124, expect.stringContaining('77')]);
    expect(asked[0]!.timeout).toBe(1);
  });

  test.each([
    [{ signal: 9 }, 137],
    [{ exitcode: 256 }, 1],
    [{ exitcode: 3_221_225_477 }, 5],
    [{ signal: 3_221_225_477 }, 5],
    [{ signal: 2_147_483_648 }, 1],
  ])('%j is the exit code %i', async (end, wanted) => {
    commands['guest-exec'] = () => ({ ...end, 'out-data': '', exited: true });
    expect((await exec('--', 'x')).code).toBe(wanted);
  });

  test('that cannot be run is told from a program that fails', async () => {
    commands['guest-exec'] = () => {
      throw new Error('The VM is off.');
    };
    const { code, stdout, stderr } = await exec('--', 'x');
    expect([code, stdout.length, stderr]).toEqual([255, 0, 'virtkeep: The VM is off. (40948)\n']);
    expect((await exec()).code).toBe(2);
  });

  test('refuses more input than a guest takes, before anything is asked', async () => {
    const { code, stderr } = await run(['vm', 'exec', 'web', '--', 'cat'], Buffer.alloc(100_000));
    expect([code, stderr, asked]).toEqual([255, expect.stringContaining('vm cp'), []]);
  });

  test('does not wait for its stdin longer than for all', async () => {
    const { code, stderr } = await run(['vm', 'exec', 'web', '--timeout', '1', '--', 'cat'], null);
    expect([code, stderr, asked]).toEqual([255, expect.stringContaining('--no-stdin'), []]);
  });

  test('says when an output was cut', async () => {
    commands['guest-exec'] = () => ({ exitcode: 0, 'out-data': 'x', exited: true, 'out-truncated': true });
    expect((await exec('--', 'x')).stderr).toContain('more on its stdout');
  });
});

describe('vm cp', () => {
  /** A guest with files, read and written as its agent does. */
  function guestFiles(
    files: Record<string, Buffer>,
    limits: { write?: number; noSeek?: boolean } = {},
  ): void {
    const opened = new Map<number, { path: string; at: number }>();
    commands = {
      'guest-file-open': ({ path, mode }) => {
        if (mode === 'w') files[path as string] = Buffer.alloc(0);
        else if (!files[path as string]) throw new Error('No such file or directory');
        opened.set(opened.size + 1, { path: path as string, at: 0 });
        return opened.size;
      },
      'guest-file-write': ({ handle, 'buf-b64': data }) => {
        const { path } = opened.get(handle as number)!;
        const bytes = Buffer.from(data as string, 'base64').subarray(0, limits.write);
        files[path] = Buffer.concat([files[path]!, bytes]);
        return { count: bytes.length, eof: false };
      },
      'guest-file-read': ({ handle, count }) => {
        const file = opened.get(handle as number)!;
        const piece = files[file.path]!.subarray(file.at, file.at + (count as number));
        file.at += piece.length;
        return { count: piece.length, 'buf-b64': base64(piece), eof: piece.length < (count as number) };
      },
      'guest-file-seek': ({ handle, offset, whence }) => {
        if (limits.noSeek) throw new Error('Illegal seek');
        const file = opened.get(handle as number)!;
        file.at = whence === 'end' ? files[file.path]!.length : (offset as number);
        return { position: file.at, eof: false };
      },
    };
  }
  const calls = (command: string) => asked.filter(one => one.command === command);
  /** The signal may come to its turn after the answer that was sent with it; then there is one piece more. */
  function expectFewer(command: string, pieces: number): void {
    expect(pieces).toBeGreaterThan(2);
    expect(calls(command).length).toBeLessThan(pieces);
  }
  const random = Buffer.from(Array.from({ length: 700_000 }, (_, index) => (index * 7919) % 251));

  test('into a guest, in pieces, also short ones; the file is closed', async () => {
    const files: Record<string, Buffer> = {};
    guestFiles(files, { write: 100_000 });
    writeFileSync(join(home, 'data.bin'), random);
    const { code, stderr } = await run(['vm', 'cp', 'data.bin', 'web:/root/']);
    expect([code, stderr]).toEqual([0, '683.6 KiB copied\n']);
    expect(files['/root/data.bin']!.equals(random)).toBe(true);
    expect(calls('guest-file-write').every(({ fargs }) => String(fargs['buf-b64']).length <= 262_144)).toBe(
      true,
    );
    expect([calls('guest-file-flush').length, calls('guest-file-close').length]).toEqual([1, 1]);
  });

  test('out of a guest, into a directory too', async () => {
    guestFiles({ '/var/log/x.log': random, 'C:\\a\\b.txt': Buffer.from('windows') });
    mkdirSync(join(home, 'there'));
    expect((await run(['vm', 'cp', 'web:/var/log/x.log', 'there'])).code).toBe(0);
    expect(readFileSync(join(home, 'there', 'x.log')).equals(random)).toBe(true);
    expect((await run(['vm', 'cp', 'web:C:\\a\\b.txt', './b.txt'])).code).toBe(0);
    expect(readFileSync(join(home, 'b.txt'), 'utf8')).toBe('windows');
    expect(calls('guest-file-close').length).toBe(2);
  });

  test('of what has no length, and of nothing', async () => {
    guestFiles({ '/proc/x': Buffer.from('abc'), '/empty': Buffer.alloc(0) }, { noSeek: true });
    expect((await run(['vm', 'cp', 'web:/proc/x', './p'])).code).toBe(0);
    expect((await run(['vm', 'cp', 'web:/empty', './e'])).code).toBe(0);
    expect([readFileSync(join(home, 'p'), 'utf8'), readFileSync(join(home, 'e'), 'utf8')]).toEqual([
      'abc',
      '',
    ]);
  });

  test('that fails half-way leaves nothing here, and closes the file there', async () => {
    guestFiles({ '/x': random });
    commands['guest-file-read'] = () => {
      throw new Error('The VM is off.');
    };
    const { code } = await run(['vm', 'cp', 'web:/x', './half']);
    expect([code, readdirSync(home).filter(name => name.startsWith('half'))]).toEqual([5, []]);
    expect(calls('guest-file-close').length).toBe(1);
  });

  test('that is interrupted closes the file there and leaves nothing here', async () => {
    const files = { '/x': Buffer.concat([random, random]) };
    guestFiles(files);
    const read = commands['guest-file-read']!;
    commands['guest-file-read'] = (...args) => {
      if (calls('guest-file-read').length === 1) child.kill('SIGINT');
      return read(...args);
    };
    const out = await run(['vm', 'cp', 'web:/x', './whole']);
    expect([out.code, readdirSync(home).filter(name => name.startsWith('whole'))]).toEqual([130, []]);
    expectFewer('guest-file-read', files['/x'].length / Number(calls('guest-file-read')[0]!.fargs.count));
    expect(calls('guest-file-close').length).toBe(1);
  });

  test('into a guest that is interrupted closes the file, and says that it is not complete', async () => {
    guestFiles({});
    const write = commands['guest-file-write']!;
    commands['guest-file-write'] = (...args) => {
      if (calls('guest-file-write').length === 1) child.kill('SIGTERM');
      return write(...args);
    };
    writeFileSync(join(home, 'data.bin'), random);
    const { code, stderr } = await run(['vm', 'cp', 'data.bin', 'web:/y']);
    expect([code, stderr]).toEqual([130, expect.stringContaining('/y in the guest is not complete')]);
    const piece = Buffer.from(String(calls('guest-file-write')[0]!.fargs['buf-b64']), 'base64');
    expectFewer('guest-file-write', random.length / piece.length);
    expect(calls('guest-file-close').length).toBe(1);
  });

  test('onto a link keeps the link, onto a file its access rights', async () => {
    guestFiles({ '/x': Buffer.from('new') });
    writeFileSync(join(home, 'private'), 'old');
    chmodSync(join(home, 'private'), 0o600);
    symlinkSync('private', join(home, 'link'));
    expect((await run(['vm', 'cp', 'web:/x', './link'])).code).toBe(0);
    expect(readlinkSync(join(home, 'link'))).toBe('private');
    expect(readFileSync(join(home, 'private'), 'utf8')).toBe('new');
    expect(statSync(join(home, 'private')).mode & 0o777).toBe(0o600);
  });

  test('into a pipe is written there', async () => {
    guestFiles({ '/x': random });
    execFileSync('mkfifo', [join(home, 'fifo')]);
    const reader = spawn('cat', [join(home, 'fifo')]);
    const [{ code }, bytes] = await Promise.all([
      run(['vm', 'cp', 'web:/x', './fifo']),
      buffer(reader.stdout),
    ]);
    expect([code, bytes.equals(random), statSync(join(home, 'fifo')).isFIFO()]).toEqual([0, true, true]);
  });

  test.each([
    [['a', 'b'], 'file in a guest'],
    [['web:/a', 'web:/b'], 'file in a guest'],
    [['web:', 'b'], 'Which file'],
    [['missing', 'web:/b'], 'Cannot read missing'],
    [['.', 'web:/b'], 'is a directory'],
  ])('%j is refused', async (args, text) => {
    const { code, stderr } = await run(['vm', 'cp', ...args]);
    expect([code, stderr, asked]).toEqual([2, expect.stringContaining(text), []]);
  });
});

describe('operations', () => {
  const KEY = 'ssh-ed25519 AAAA me@home';
  const act = async (args: string[], stdin = '') => {
    const { code, stdout, stderr } = await run(['vm', ...args], stdin);
    if (code !== 0) throw new Error(stderr);
    return stdout.toString();
  };

  test.each<[string[], string, string, object, object, string]>([
    [['set-hostname', 'web'], '', 'set-hostname', { restart: true }, { hostname: 'web' }, 'host name web'],
    [
      ['set-hostname', 'web', 'db', '--no-restart'],
      '',
      'set-hostname',
      { hostname: 'db', restart: false },
      { hostname: 'db', restarted: true },
      'host name db, restarted',
    ],
    [
      ['join-domain', 'web', 'ad.example.com', '--login', 'me', '--name', 'W', '--ou', 'OU=X,DC=ad'],
      'p w\n',
      'add-to-ad',
      {
        domainname: 'ad.example.com',
        login: 'me',
        password: 'p w',
        newname: 'W',
        oupath: 'OU=X,DC=ad',
        restart: true,
      },
      { domain: 'ad.example.com', computer_name: 'W', restarted: true, warnings: ['look at SELinux'] },
      'joined ad.example.com as W, restarted',
    ],
    [
      ['join-domain', 'web', 'ad.example.com', '--login', 'me', '--no-install', '--no-restart'],
      'secret',
      'add-to-ad',
      {
        ...{ domainname: 'ad.example.com', login: 'me', password: 'secret' },
        ...{ install_packages: false, restart: false },
      },
      { domain: 'ad.example.com', computer_name: 'W', restarted: false, warnings: [], installed: [] },
      'joined ad.example.com as W',
    ],
    [
      ['join-domain', 'web', 'ad.example.com', '--login', 'me'],
      'secret',
      'add-to-ad',
      { domainname: 'ad.example.com', login: 'me', password: 'secret', restart: true },
      { domain: 'ad.example.com', computer_name: 'W', restarted: false, installed: ['adcli', 'realmd'] },
      'joined ad.example.com as W, installed adcli realmd',
    ],
    [
      ['leave-domain', 'web', '--login', 'me', '--no-restart'],
      'secret',
      'rm-from-ad',
      { login: 'me', password: 'secret', restart: false },
      { domain: 'ad.example.com', restarted: false },
      'left ad.example.com',
    ],
    [
      ['ssh-key', 'add', 'web', 'root', '-'],
      `# mine\n${KEY}\n\n${KEY}2\n`,
      'ssh-keys',
      { ssh_user: 'root', ssh_key: [KEY, `${KEY}2`] },
      {},
      'root may log in now with these 2 keys',
    ],
    [
      ['ssh-key', 'remove', 'web', 'root', '-'],
      KEY,
      'ssh-keys/remove',
      { ssh_user: 'root', ssh_key: [KEY] },
      {},
      'root may log in no more with this key',
    ],
    [
      ['sysprep', 'web', '--mode', 'audit', '--action', 'quit', '--no-generalize', '--vm', '--unattend', '-'],
      '<x/>',
      'sysprep',
      { mode: 'audit', action: 'quit', generalize: false, vm_mode: true, unattend: '<x/>' },
      { action: 'quit' },
      'Sysprep is done (quit)',
    ],
    [
      ['prepare', 'web', '--disk', VM, '--operations', 'machine-id,logfiles'],
      '',
      'prepare',
      { boot_disk: VM, operations: ['machine-id', 'logfiles'] },
      { operations: ['machine-id', 'logfiles'] },
      'prepared: machine-id, logfiles',
    ],
    [
      ['guest-tools', 'attach', 'web'],
      '',
      'attach-guest-tools-iso',
      {},
      { target_dev: 'sda' },
      'guest tools mounted as sda',
    ],
    [
      ['guest-tools', 'detach', 'web'],
      '',
      'detach-guest-tools-iso',
      {},
      { target_dev: 'sda' },
      'guest tools unmounted from sda',
    ],
  ])('%j', async (...row) => {
    const [args, stdin, path, body, response, text] = row;
    result = response;
    const out = await act(args, stdin);
    expect(posted).toEqual([{ path: `/api/domains/${VM}/${path}/?async=1`, body }]);
    expect(out).toBe(`web: ${text}\n`);
  });

  test('what people should know beside the result is told as a warning', async () => {
    result = { domain: 'ad.example.com', computer_name: 'W', restarted: true, warnings: ['look at SELinux'] };
    remark = 'look at \u001b[2JSELinux';
    const { code, stderr } = await run(
      ['vm', 'join-domain', 'web', 'ad.example.com', '--login', 'me'],
      'secret',
    );
    expect(code).toBe(0);
    expect(stderr.match(/^warning: look at .*SELinux$/gm)).toHaveLength(1);
    expect(stderr).not.toContain('\u001b');
  });

  test('no password is an argument', async () => {
    expect((await run(['vm', 'join-domain', 'web', 'ad', '--login', 'me', '--password', 'x'])).code).toBe(2);
    expect((await run(['vm', 'ssh-key', 'add', 'web', 'root', 'missing.pub'])).code).toBe(2);
    expect(posted).toEqual([]);
  });

  test('keys are listed one a line', async () => {
    result = { ssh_user: 'root', keys: [KEY, `${KEY}2`] };
    expect(await act(['ssh-key', 'list', 'web'])).toBe(`${KEY}\n${KEY}2\n`);
  });

  test('what a preparation can do is listed', async () => {
    result = {
      operations: [
        { name: 'logfiles', default: true, description: 'Remove many log files' },
        { name: 'ca-certificates', default: false, description: 'Remove CA certificates' },
      ],
    };
    const text = 'logfiles\t*\tRemove many log files\nca-certificates\t\tRemove CA certificates\n';
    expect(await act(['prepare-operations', 'web'])).toBe(text);
  });

  test('what a guest says does nothing to a terminal', async () => {
    const evil = 'a\u001b]0;x\u0007\u009b31mb';
    result = { qemu_state: true, hostname: evil, ipv4: [evil], ipv6: [], users: [], file_systems: [] };
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
    const controls = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/;
    expect(await act(['guest-info', 'web'])).not.toMatch(controls);
    const json = await run(['--json', 'vm', 'guest-info', 'web']);
    expect(json.stdout.toString()).not.toMatch(controls);
    expect(JSON.parse(json.stdout.toString())).toEqual(result);
    commands['guest-exec'] = () => {
      throw new Error(evil);
    };
    expect((await run(['vm', 'exec', 'web', '--', 'x'])).stderr).not.toMatch(controls);
  });

  test('guest-info, under both of its names', async () => {
    result = {
      qemu_state: true,
      refreshed: '2026-01-02T03:04:05.000Z',
      agent_version: '7.2.0',
      hostname: 'web-1',
      ipv4: ['192.0.2.7'],
      ipv6: [],
      os: { 'pretty-name': 'Debian 12', machine: 'x86_64', 'kernel-release': '6.1.0' },
      file_systems: [{ name: 'vda1', mountpoint: '/', type: 'ext4', used_bytes: 1024, total_bytes: 4096 }],
      users: [{ name: 'root', login_time: null }],
      frozen_since: '2026-01-02T03:04:05.000Z',
    };
    const text = await act(['guest-info', 'web']);
    for (const part of [
      'connected, version 7.2.0',
      'web-1',
      '192.0.2.7',
      'Debian 12 x86_64',
      '/ ext4 1.00 KiB',
    ])
      expect(text).toContain(part);
    expect(await act(['guest_info', VM, '--refresh'])).toBe(text);
  });
});
