import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';

// A scripted REST server stands in for the controller: what is tested is what the command sends, prints and returns.
type Answer = { status?: number; body: unknown };
type Script = (method: string, path: string, body: unknown) => Answer;

const VM = '11111111-1111-4111-8111-111111111111';
const FILE = '22222222-2222-4222-8222-222222222222';
const TASK = '33333333-3333-4333-8333-333333333333';
const MAIN = new URL('../../controller/cli/src/main.ts', import.meta.url).pathname;

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
    detail: { phase: 'copy', bytes_done: 4, bytes_total: 10, rate: 1, message: '' },
    ...patch,
  };
}

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
      return { body: { id: FILE, filename: 'web.tar.zst', verbose_name: 'web.tar.zst', size: 1536 } };
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

  test('a saved token is not sent to another controller', async () => {
    script = () => ({ body: { token: 'fresh', expires_on: '' } });
    await run(['login', '--url', url(), '--username', 'admin'], { VIRTKEEP_TOKEN: '' }, 'x');
    seen.length = 0;
    script = () => page([]);
    await run(['nodes'], { VIRTKEEP_TOKEN: '', VIRTKEEP_URL: url().replace('127.0.0.1', 'localhost') });
    expect(seen[0]?.authorization).toBeUndefined();
  });
});
