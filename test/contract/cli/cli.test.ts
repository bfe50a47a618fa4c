import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { programFile } from '../../lab/paths.ts';

// A scripted REST server stands in for the controller: what is tested is what the command sends, prints and returns.
/** A silent one is never given. */
type Answer = { status?: number; body: unknown; isSilent?: boolean };
type Script = (method: string, path: string, body: unknown) => Answer;

const VM = '11111111-1111-4111-8111-111111111111';
const FILE = '22222222-2222-4222-8222-222222222222';
const TASK = '33333333-3333-4333-8333-333333333333';
const MAIN = programFile('virtkeep');

let server: Server;
let script: Script;
let home: string;
const seen: { method: string; path: string; authorization: string | undefined; body: unknown }[] = [];

async function readBody(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return chunks.length > 0 ? JSON.parse(Buffer.concat(chunks).toString()) : undefined;
}

beforeEach(async () => {
  seen.length = 0;
  home = mkdtempSync(join(tmpdir(), 'virtkeep-cli-'));
  server = createServer((request, response) => {
    void readBody(request).then(body => {
      const path = request.url ?? '';
      seen.push({ method: request.method ?? '', path, authorization: request.headers.authorization, body });
      const answer = script(request.method ?? '', path, body);
      if (answer.isSilent) return;
      response.writeHead(answer.status ?? 200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(answer.body));
    });
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
});

afterEach(async () => {
  rmSync(home, { recursive: true, force: true });
  await new Promise(resolve => server.close(resolve));
});

function url(): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function run(
  args: string[],
  env: Record<string, string> = {},
  stdin = '',
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: {
      PATH: process.env.PATH,
      HOME: home,
      XDG_CONFIG_HOME: home,
      VIRTKEEP_URL: url(),
      VIRTKEEP_TOKEN: 'tok',
      ...env,
    },
  });
  const out = { stdout: '', stderr: '' };
  child.stdout.on('data', chunk => {
    out.stdout += chunk;
  });
  child.stderr.on('data', chunk => {
    out.stderr += chunk;
  });
  child.stdin.end(stdin);
  return new Promise(resolve => child.on('close', code => resolve({ code, ...out })));
}

const page = (results: unknown[]) => ({
  body: { count: results.length, next: null, previous: null, results },
});

function task(status: string, patch: Record<string, unknown> = {}) {
  return {
    id: TASK,
    verbose_name: 'Backup of web',
    status,
    progress: status === 'SUCCESS' ? 100 : 40,
    error: null,
    error_message: '',
    entities: { [FILE]: 'file', [VM]: 'domain' },
    detail: { phase: 'copy', bytes_done: 4, bytes_total: 10, rate: 1, message: '' },
    ...patch,
  };
}

const fileRecord = {
  id: FILE,
  filename: 'web.tar.zst',
  verbose_name: 'web.tar.zst',
  size: 1536,
  states: [{ number: 1 }],
  fallback_reason: '',
};

/** Answers an action that is a task which succeeds at once; anything else is asked of the test. */
function taskScript(others: Script, response: unknown = {}): Script {
  return (method, path, body) => {
    if (method === 'POST') return { status: 202, body: { entity: FILE, _task: task('IN_PROGRESS') } };
    if (path.endsWith('/response/')) return { body: { status: 'SUCCESS', response, error: null } };
    if (path.startsWith('/api/tasks/')) return { body: task('SUCCESS') };
    return others(method, path, body);
  };
}

const posted = () => seen.find(one => one.method === 'POST');

describe('virtkeep command', () => {
  test('a backup by name sends the options, follows the task and prints the file', async () => {
    let polls = 0;
    script = (method, path) => {
      if (path.startsWith('/api/domains/?'))
        return page([
          { id: VM, verbose_name: 'web' },
          { id: FILE, verbose_name: 'web-2' },
        ]);
      if (method === 'POST') return { status: 202, body: { entity: FILE, _task: task('IN_PROGRESS') } };
      if (path.startsWith('/api/tasks/')) return { body: task(polls++ > 0 ? 'SUCCESS' : 'IN_PROGRESS') };
      return { body: fileRecord };
    };
    const result = await run(['backup', 'web', '--compress', '--hash', '--no-iso']);
    expect(result).toMatchObject({ code: 0, stdout: `web.tar.zst  1.50 KiB  ${FILE}\n` });
    expect(result.stderr).toContain('Backup of web: copy');
    const post = seen.find(one => one.method === 'POST');
    expect(post).toMatchObject({
      path: '/api/domains/backup/?async=1',
      authorization: 'jwt tok',
      body: { domain: VM, compress: true, hash_sum: true, exclude_iso: true },
    });
  });

  test.each([
    ['FAILED', 1],
    ['CANCELED', 7],
    ['LOST', 6],
  ])('a task that ends %s gives exit code %d', async (status, code) => {
    script = () => ({ body: task(status, { error: { code: '50205', detail: 'No space left' } }) });
    expect((await run(['tasks', 'wait', TASK])).code).toBe(code);
  });

  test.each([[[]], [['--json']]])(
    'what people should know of one that succeeded is told on stderr %j',
    async options => {
      const detail = { ...task('SUCCESS').detail, message: 'The guest could not be quiesced.' };
      script = () => ({ body: task('SUCCESS', { detail }) });
      const { code, stdout, stderr } = await run(['tasks', 'wait', TASK, ...options]);
      expect(code).toBe(0);
      expect(stderr).toContain('warning: The guest could not be quiesced.\n');
      expect(stdout).not.toContain('warning');
    },
  );

  test('what one whose node is gone has told last is no warning', async () => {
    const detail = { ...task('LOST').detail, message: 'The guest restarts.' };
    script = () => ({ body: task('LOST', { detail }) });
    expect((await run(['tasks', 'wait', TASK])).stderr).not.toContain('warning');
  });

  test('those of a node are listed', async () => {
    script = (_method, path) => page(path.startsWith('/api/nodes/') ? [{ id: VM, verbose_name: 'n1' }] : []);
    expect((await run(['tasks', 'list', '--node', 'n1', '--status', 'IN_PROGRESS'])).code).toBe(0);
    expect(seen.at(-1)?.path).toContain(`status=IN_PROGRESS&node=${VM}&`);
  });

  test('of one that succeeded in part is told what did not, and how to see it', async () => {
    const detail = { ...task('PARTIAL').detail, message: 'web2 is gone.' };
    script = () => ({ body: task('PARTIAL', { detail }) });
    const { code, stderr } = await run(['tasks', 'wait', TASK]);
    expect(code).toBe(1);
    expect(stderr).toContain('warning: web2 is gone.\n');
    expect(stderr).toContain(
      `succeeded in part. What of it did not, "virtkeep tasks list --parent ${TASK}" shows`,
    );
  });

  test('a proxy before a controller that is restarted has not refused anything', async () => {
    const answers = [502, 200];
    script = () => {
      const status = answers.shift()!;
      return { status, body: status === 200 ? task('SUCCESS') : 'Bad Gateway' };
    };
    expect((await run(['tasks', 'wait', TASK])).code).toBe(0);
    answers.push(502);
    expect(await run(['nodes'])).toMatchObject({
      code: 6,
      stderr: expect.stringContaining('Something before the controller answered with HTTP status 502'),
    });
  });

  test('a task refused by the state of the thing gives the exit code of a conflict', async () => {
    script = () => ({ body: task('FAILED', { error: { code: '40915', detail: 'it is running' } }) });
    expect((await run(['tasks', 'wait', TASK])).code).toBe(5);
  });

  test.each([
    [400, 2],
    [401, 3],
    [403, 3],
    [404, 4],
    [409, 5],
    [503, 6],
    [500, 1],
  ])('HTTP %d gives exit code %d and the text of the error', async (status, code) => {
    script = () => ({
      status,
      body: { errors: [{ code: `${status}01`, detail: 'because of this', msg_key: 'x' }] },
    });
    const result = await run(['nodes']);
    expect(result.code).toBe(code);
    expect(result.stderr).toContain(`because of this (${status}01)`);
  });

  test('an ambiguous name is refused with the ids', async () => {
    script = () =>
      page([
        { id: VM, verbose_name: 'web' },
        { id: FILE, verbose_name: 'web' },
      ]);
    const result = await run(['vms', 'show', 'web']);
    expect(result.code).toBe(2);
    expect(result.stderr).toContain(VM);
  });

  test('names from elsewhere cannot send escape sequences to the terminal', async () => {
    script = () => page([{ id: VM, verbose_name: 'evil\u001b[2J\nname', status: 'ACTIVE' }]);
    const result = await run(['nodes']);
    expect(result.stdout).not.toContain('\u001b');
    expect(result.stdout.trim().split('\n')).toHaveLength(1);
  });

  test('--json prints the records as they came', async () => {
    script = () => page([{ id: VM, verbose_name: 'n1' }]);
    expect(JSON.parse((await run(['nodes', '--json'])).stdout)).toEqual([{ id: VM, verbose_name: 'n1' }]);
  });

  test('login reads the password from stdin and keeps the token readable by the user alone', async () => {
    script = () => ({ body: { token: 'fresh', expires_on: '2030-01-01T00:00:00Z' } });
    const result = await run(
      ['login', '--url', url(), '--username', 'admin'],
      { VIRTKEEP_TOKEN: '' },
      'pass word\n',
    );
    expect(result.code).toBe(0);
    expect(seen[0]?.body).toEqual({ username: 'admin', password: 'pass word' });
    const path = join(home, 'virtkeep', 'session.json');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual({ url: url(), token: 'fresh' });
    expect(result.stdout + result.stderr).not.toContain('fresh');
  });

  test('logout ends the session on the controller, and keeps it when it cannot, unless forced', async () => {
    const token = `x.${Buffer.from(JSON.stringify({ jti: 'the-jti' })).toString('base64url')}.y`;
    const path = join(home, 'virtkeep', 'session.json');
    const login = () => run(['login', '--url', url(), '--username', 'admin'], { VIRTKEEP_TOKEN: '' }, 'x');
    script = () => ({ body: { token, expires_on: '' } });
    await login();
    seen.length = 0;
    script = () => ({ body: {} });
    expect((await run(['logout'])).code).toBe(0);
    expect(seen).toMatchObject([
      { method: 'POST', path: '/api/tokens/the-jti/remove/', authorization: `jwt ${token}` },
    ]);
    expect(existsSync(path)).toBe(false);
    script = () => ({ body: { token, expires_on: '' } });
    await login();
    script = () => ({ status: 503, body: {} });
    const away = await run(['logout']);
    expect([away.code, away.stderr]).toEqual([6, expect.stringContaining('--force')]);
    expect(existsSync(path)).toBe(true);
    const forced = await run(['logout', '--force']);
    expect([forced.code, forced.stderr]).toEqual([6, expect.stringContaining('until it expires')]);
    expect(existsSync(path)).toBe(false);
    expect((await run(['logout'])).code).toBe(0);
  });

  test('a password is not sent in plain without a word', async () => {
    script = () => ({ body: { token: 'fresh', expires_on: '' } });
    const result = await run(['login', '--url', url(), '--username', 'admin'], { VIRTKEEP_TOKEN: '' }, 'x');
    expect(result.stderr).toMatch(/http:\/\/.*in plain/);
  });

  test('a saved token is not sent to another controller', async () => {
    script = () => ({ body: { token: 'fresh', expires_on: '' } });
    await run(['login', '--url', url(), '--username', 'admin'], { VIRTKEEP_TOKEN: '' }, 'x');
    seen.length = 0;
    script = () => page([]);
    await run(['nodes'], { VIRTKEEP_TOKEN: '', VIRTKEEP_URL: url().replace('127.0.0.1', 'localhost') });
    expect(seen[0]?.authorization).toBeUndefined();
  });
});

describe('increments', () => {
  const others: Script = (_method, path) => {
    if (path.startsWith('/api/domains/?')) return page([{ id: VM, verbose_name: 'web' }]);
    if (path.startsWith('/api/library/?')) return page([fileRecord]);
    return { body: fileRecord };
  };

  test.each([
    [['--incremental', '--hold'], { can_be_incremental: true, hold_states: true }],
    [['--extend', 'web.tar.zst'], { backup: FILE }],
    [['--increment'], { increment: true }],
  ])('backup %p', async (options, body) => {
    script = taskScript(others);
    expect((await run(['backup', 'web', ...options])).code).toBe(0);
    expect(posted()?.body).toEqual({ domain: VM, ...body });
  });

  test('the file is the one that the task made in the end, and why it is no increment is told', async () => {
    const made = '44444444-4444-4444-8444-444444444444';
    script = (method, path, body) => {
      if (path === `/api/tasks/${TASK}/`)
        return { body: task('SUCCESS', { entities: { [made]: 'file', [FILE]: 'file', [VM]: 'domain' } }) };
      if (path === `/api/library/${made}/`)
        return { body: { ...fileRecord, id: made, fallback_reason: 'a saved state was deleted' } };
      return taskScript(others)(method, path, body);
    };
    const result = await run(['backup', 'web', '--increment']);
    expect(result.stdout).toContain(made);
    expect(result.stderr).toContain('not an increment: a saved state was deleted');
  });

  test('a task is followed further when nobody answers for a while, and is said to go on when nobody may ask any more', async () => {
    const answers = [429, 503, 200, 401];
    script = (method, path, body) => {
      if (path !== `/api/tasks/${TASK}/`) return taskScript(() => page([fileRecord]))(method, path, body);
      const status = answers.shift()!;
      const error = { code: '00000', detail: `it answered ${status}` };
      return { status, body: status === 200 ? task('IN_PROGRESS') : { errors: [error] } };
    };
    const result = await run(['backup', VM]);
    expect([result.code, answers]).toEqual([6, []]);
    expect(result.stderr).toContain(`it answered 401 (00000)\nThe task ${TASK} goes on.`);
    answers.push(404);
    expect((await run(['tasks', 'wait', TASK])).code).toBe(4);
  });

  test('the extendable backups are asked for, and shown as such', async () => {
    const file = { ...fileRecord, type: 'tar', can_be_incremental: true, domain: null, datapool: {} };
    script = () => page([file]);
    const result = await run(['backups', 'list', '--extendable']);
    expect(seen[0]?.path).toContain('can_be_incremental=1');
    expect(result.stdout.split('\t').slice(4, 6)).toEqual(['1', 'yes']);
  });
});

describe('saved states', () => {
  const states = [
    {
      id: FILE,
      verbose_name: 'before',
      current: true,
      memory: true,
      parent: null,
      created: 'x',
      backup: null,
    },
  ];
  const others: Script = (_method, path) =>
    path.startsWith('/api/domains/?') ? page([{ id: VM, verbose_name: 'web' }]) : page(states);

  test('are listed', async () => {
    script = others;
    expect((await run(['snapshots', 'list', 'web'])).stdout).toBe(`before\tyes\t\tyes\tx\t\t${FILE}\n`);
  });

  test('are made', async () => {
    script = taskScript(others);
    expect((await run(['snapshots', 'create', 'web', 'now', '--memory', '--description', 'why'])).code).toBe(
      0,
    );
    expect(posted()).toMatchObject({
      path: `/api/domains/${VM}/snapshots/?async=1`,
      body: { verbose_name: 'now', memory: true, description: 'why' },
    });
  });

  test.each([
    ['remove', ['--bandwidth', '20M'], { bandwidth: 20 * 1024 * 1024 }],
    ['revert', [], {}],
  ])('%s, by name', async (action, options, body) => {
    script = taskScript(others);
    expect((await run(['snapshots', action, 'web', 'before', ...options])).code).toBe(0);
    expect(posted()).toMatchObject({ path: `/api/domains/${VM}/snapshots/${FILE}/${action}/?async=1`, body });
  });

  test('one that is not there is not found; a limit that is none is a usage error', async () => {
    script = taskScript(others);
    expect((await run(['snapshots', 'revert', 'web', 'after'])).code).toBe(4);
    expect((await run(['snapshots', 'remove', 'web', 'before', '--bandwidth', 'fast'])).code).toBe(2);
  });
});

describe('backup files', () => {
  const others: Script = () => page([fileRecord]);

  test('are converted', async () => {
    script = taskScript(others, { ...fileRecord, filename: 'web.tar' });
    const result = await run(['backups', 'unpack', 'web.tar.zst']);
    expect(result.stdout).toContain('web.tar  1.50 KiB');
    expect(posted()).toMatchObject({ path: `/api/library/${FILE}/unpack/?async=1`, body: {} });
    await run(['backups', 'compress', 'web.tar.zst', '--level', '9']);
    expect(seen.findLast(one => one.method === 'POST')?.body).toEqual({ level: 9 });
    expect((await run(['backups', 'compress', 'web.tar.zst', '--level', '19'])).code).toBe(2);
  });

  test('are made of foreign files by the node that is named', async () => {
    const node = { id: VM, verbose_name: 'n1' };
    script = taskScript((_method, path) => page([path.startsWith('/api/nodes') ? node : fileRecord]));
    await run(['backups', 'convert', 'web.tar.zst', '--node', 'n1', '--compress']);
    expect(posted()).toMatchObject({
      path: `/api/library/${FILE}/convert-backup/?async=1`,
      body: { node: VM, compress: true },
    });
  });

  test('a damaged one is named member by member, with what can be restored', async () => {
    const response = {
      ok: false,
      problems: [{ member: 'a', reason: 'its hash differs' }],
      restorable_states: [1, 3],
    };
    script = taskScript(others, response);
    const result = await run(['backups', 'verify', 'web.tar.zst']);
    expect(result.code).toBe(1);
    expect(result.stderr).toContain('a: its hash differs\nStates that can be restored: 1, 3.');
    script = taskScript(others, { ok: true, unproven_members: 0 });
    expect(await run(['backups', 'verify', 'web.tar.zst'])).toMatchObject({
      code: 0,
      stdout: 'web.tar.zst: verified\n',
    });
  });

  test('one that has nothing to be compared with is not told to be verified', async () => {
    script = taskScript(others, { ok: true, unproven_members: 2 });
    const { code, stdout } = await run(['backups', 'verify', 'web.tar.zst']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^web\.tar\.zst: read without a problem, but not proved: 2 of its members/);
    expect(stdout).not.toContain('verified');
  });

  test('restore without disks passes its options on', async () => {
    const node = { id: VM, verbose_name: 'n1' };
    script = taskScript((_method, path) =>
      path.startsWith('/api/nodes') ? page([node]) : page([fileRecord]),
    );
    const options = ['--config-only', '--system', 'vm1', '--network', 'VM Network=default', '--virtio'];
    expect((await run(['restore', 'web.tar.zst', ...options, '--no-wait'])).code).toBe(0);
    expect(posted()).toMatchObject({
      path: '/api/domains/config-restore/?async=1',
      body: { file: FILE, node: VM, system: 'vm1', networks: { 'VM Network': 'default' }, virtio: true },
    });
    expect((await run(['restore', 'web.tar.zst', '--config-only', '--network', 'LAN'])).code).toBe(2);
    for (const wrong of [
      ['--config-only', '--start'],
      ['--config-only', '--all'],
    ])
      expect((await run(['restore', 'web.tar.zst', ...wrong])).code).toBe(2);
  });

  test('import of a disk passes its options on, for a new VM or for one that is there', async () => {
    const node = { id: VM, verbose_name: 'n1' };
    const domain = { id: VM, verbose_name: 'web', node: { id: FILE, verbose_name: 'n2' } };
    script = taskScript((_method, path) => {
      if (path.startsWith('/api/nodes')) return page([node]);
      return page([path.startsWith('/api/domains') ? domain : fileRecord]);
    });
    const command = ['import', 'disk', 'web.tar.zst', '--no-wait'];
    const vm = ['--name', 'shop', '--memory', '1GiB', '--cpus', '2', '--uefi', '--network', 'lan'];
    expect((await run([...command, ...vm, '--no-virtio', '--format', 'raw'])).code).toBe(0);
    expect(posted()).toMatchObject({
      path: '/api/domains/import-disk/?async=1',
      body: {
        ...{ file: FILE, node: VM, verbose_name: 'shop', memory_count: 1024, cpu_count: 2, firmware: 'uefi' },
        ...{ network: 'lan', virtio: false, format: 'raw' },
      },
    });
    seen.length = 0;
    expect((await run([...command, '--vm', 'web', '--bus', 'scsi'])).code).toBe(0);
    expect(posted()!.body).toMatchObject({ file: FILE, node: FILE, domain: VM, target_bus: 'scsi' });
    for (const wrong of [
      ['--name', 'x'],
      ['--vm', 'web', '--cpus', '1'],
      [...vm, '--memory', '100'],
    ])
      expect((await run([...command, ...wrong])).code).toBe(2);
  });

  test('restore passes its options on', async () => {
    const node = { id: VM, verbose_name: 'n1' };
    script = taskScript((_method, path) =>
      path.startsWith('/api/nodes') ? page([node]) : page([fileRecord]),
    );
    const options = [
      '--state',
      '2',
      '--flatten',
      '--instant',
      '--bandwidth',
      '1.5M',
      '--lun',
      'sdb',
      '--no-wait',
    ];
    expect((await run(['restore', 'web.tar.zst', ...options])).code).toBe(0);
    expect(posted()?.body).toEqual({
      file: FILE,
      node: VM,
      state: '2',
      flatten: true,
      instant: true,
      bandwidth: 1.5 * 1024 * 1024,
      luns: ['sdb'],
    });
  });
});

describe('settings', () => {
  const setting = { name: 'schedules.per_node', value: 4, from_file: 2, modified: 'x' };

  test('are listed', async () => {
    script = () => page([setting]);
    expect((await run(['settings'])).stdout).toBe('schedules.per_node\t4\t2\tx\n');
  });

  test.each([
    [['set', 'schedules.per_node', '4'], 4],
    [['set', 'notifications.daily_at', '06:30'], '06:30'],
    [['reset', 'schedules.per_node'], null],
  ])('%j', async (args, value) => {
    script = () => ({ body: setting });
    expect((await run(['settings', ...args])).stdout).toBe('schedules.per_node: 4\n');
    expect(seen[0]).toMatchObject({ method: 'PUT', path: '/api/settings/', body: { name: args[1], value } });
  });
});

describe('disks of another VM', () => {
  const disk = {
    id: FILE,
    verbose_name: 'web-data',
    status: 'ACTIVE',
    size: 2048,
    used: 1024,
    virtual_size: 2048,
    target_dev: 'vdb',
    target_bus: 'virtio',
    datapool: { id: TASK, verbose_name: 'fast', type: 'local' },
    domain: { id: VM, verbose_name: 'web' },
    snapshots: [],
  };
  const others: Script = (_method, path) => {
    if (path.startsWith(`/api/vdisks/${FILE}/`)) return { body: disk };
    return path.startsWith('/api/vdisks/') ? page([disk]) : page([{ id: VM, verbose_name: 'web' }]);
  };

  test('are listed by the VM that has them, and shown', async () => {
    script = others;
    const line = `web\tvdb\tweb-data\t2.00 KiB\t1.00 KiB\tfast\tACTIVE\t${FILE}\n`;
    expect((await run(['vdisks', 'list', '--attached-to', 'web'])).stdout).toBe(line);
    expect(seen.at(-1)?.path).toContain(`another_domain=${VM}`);
    expect((await run(['vdisks', 'show', 'web-data'])).stdout).toContain('target        vdb (virtio)');
    expect((await run(['vdisks', 'show', 'other'])).code).toBe(4);
  });

  test('are attached and detached, by name or id', async () => {
    const response = { attached: { target_dev: 'vdc' }, snapshot: { created: 'then' } };
    script = taskScript(others, response);
    const attached = await run(['vdisks', 'attach', 'web', 'web-data', '--thin-clone', 'web']);
    expect(attached).toMatchObject({ code: 0, stdout: 'web: attached as vdc, as of then\n' });
    expect(posted()).toMatchObject({
      path: `/api/domains/${VM}/attach-vdisk/?async=1`,
      body: { vdisk: FILE, thin_clone: VM },
    });
    expect((await run(['vdisks', 'detach', 'web', FILE])).stdout).toBe('web: detached\n');
    expect(seen.findLast(one => one.method === 'POST')).toMatchObject({
      path: `/api/domains/${VM}/detach-vdisk/?async=1`,
      body: { vdisk: FILE },
    });
  });
});

describe('templates', () => {
  const template = {
    id: VM,
    verbose_name: 'base',
    status: 'ACTIVE',
    node: { verbose_name: 'n1' },
    parent: null,
  };
  const clone = { ...template, id: FILE, verbose_name: 'one', parent: { id: VM, verbose_name: 'base' } };
  const others: Script = (method, path) => {
    if (method === 'PUT') return { status: 202, body: { entity: VM, _task: task('IN_PROGRESS') } };
    if (path.startsWith(`/api/domains/${VM}/`)) return { body: template };
    return page(
      path.includes('thin=true') ? [clone] : path.includes('template=true') ? [template] : [template, clone],
    );
  };

  test('are listed with their thin clones, marked and unmarked', async () => {
    script = taskScript(others);
    expect((await run(['templates'])).stdout).toBe(`base\tACTIVE\tn1\tone\t${VM}\n`);
    expect((await run(['templates', 'mark', 'base'])).stdout).toBe('base: a template now\n');
    const put = seen.find(one => one.method === 'PUT');
    expect(put).toMatchObject({ path: `/api/domains/${VM}/template/?async=1`, body: { template: true } });
    await run(['templates', 'unmark', 'base']);
    expect(seen.findLast(one => one.method === 'PUT')?.body).toEqual({ template: false });
  });

  test('are cloned, and changed by a clone', async () => {
    script = taskScript(others, { version: 2, clones: [FILE, TASK] });
    const made = await run(['templates', 'clone', 'base', 'two', '--thin', '--description', 'why']);
    expect(made).toMatchObject({ code: 0, stdout: `base  ${VM}\n` });
    expect(posted()).toMatchObject({
      path: `/api/domains/${VM}/clone/?async=1`,
      body: { verbose_name: 'two', thin: true, description: 'why' },
    });
    const changed = await run(['templates', 'change', 'one']);
    expect(changed.stdout).toBe('base: version 2, 2 thin clones made anew\n');
    expect(seen.findLast(one => one.method === 'POST')?.path).toBe(
      `/api/domains/${FILE}/change-template/?async=1`,
    );
  });
});

describe('download', () => {
  const content = Buffer.from('0123456789'.repeat(1000));
  let cut: number | undefined;
  let ranges: (string | undefined)[];

  beforeEach(() => {
    cut = undefined;
    ranges = [];
    script = () => ({ body: fileRecord });
    server.prependListener('request', (request, response) => {
      if (!request.url?.includes('/download/')) return;
      const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
      ranges.push(request.headers.range);
      if (from >= content.length) response.writeHead(416, { 'content-range': `bytes */${content.length}` });
      else response.writeHead(from > 0 ? 206 : 200, { 'content-length': content.length - from, etag: '"t"' });
      if (cut === undefined) response.end(content.subarray(from));
      else response.write(content.subarray(from, cut), () => response.destroy());
      response.writeHead = () => response;
      response.end = () => response;
    });
  });

  const target = () => join(home, 'copy.tar');

  test('writes the file, and goes on where it broke off', async () => {
    cut = 4000;
    const broken = await run(['backups', 'download', FILE, '-o', target()]);
    expect(broken.code).toBe(6);
    expect(broken.stderr).toContain('--resume');
    const { size } = statSync(`${target()}.part`);
    cut = undefined;
    const resumed = await run(['backups', 'download', FILE, '-o', target(), '--resume']);
    expect([resumed.code, resumed.stderr]).toEqual([0, expect.stringContaining('9.77 KiB')]);
    expect(readFileSync(target()).equals(content)).toBe(true);
    expect(ranges).toEqual([undefined, size === 0 ? undefined : `bytes=${size}-`]);
    expect((await run(['backups', 'download', FILE, '-o', target()])).code).toBe(5);
  });

  test('of which all had come ends when it is gone on with', async () => {
    const part = `${target()}.part`;
    writeFileSync(part, content);
    writeFileSync(`${part}.tag`, '"t"');
    expect((await run(['backups', 'download', FILE, '-o', target(), '--resume'])).code).toBe(0);
    expect(readFileSync(target()).equals(content)).toBe(true);
    expect([existsSync(part), existsSync(`${part}.tag`), ranges]).toEqual([false, false, ['bytes=10000-']]);
    rmSync(target());
    writeFileSync(part, Buffer.concat([content, content]));
    writeFileSync(`${part}.tag`, '"t"');
    expect((await run(['backups', 'download', FILE, '-o', target(), '--resume'])).code).not.toBe(0);
    expect(existsSync(target())).toBe(false);
  });

  test('prints a member to stdout', async () => {
    const result = await run(['backups', 'download', FILE, '--member', '1_web.xml', '-o', '-']);
    expect(result.stdout).toBe(content.toString());
    expect(seen.find(one => one.path.includes('download'))?.path).toContain('member=1_web.xml');
  });
});

test('a tab ends soon when the controller does not answer', async () => {
  script = () => ({ body: {}, isSilent: true });
  expect(await run(['__complete', '--', 'vms', 'show', 'w'])).toEqual({ code: 0, stdout: '', stderr: '' });
  expect(seen.map(({ path }) => path)).toEqual(['/api/domains/?limit=1000&fields=verbose_name&name=w']);
});
