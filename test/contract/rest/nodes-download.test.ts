/** Downloads over a real socket: ranges, members, slow readers and readers that go away. */

import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { BackupFile, Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { createLogger } from '@virtkeep/shared/log';
import type { Role } from '@virtkeep/shared/permissions';
import { MiB } from '@virtkeep/shared/units';
import type { Principal } from '../../../controller/src/auth/principal.ts';
import { makeRestApp, type RestApp } from './app.ts';
import { type Enrolled, ended, enrolled, status, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
const logged: string[] = [];
const log = createLogger('test', 'error');
log.error = ((message: string) => logged.push(message)) as never;
let node: Enrolled;
let agent: FakeAgent;
let pool: Pool;
let file: BackupFile;
let content: Buffer;
let path: string;
let port: number;

beforeAll(async () => {
  rest = await makeRestApp({}, undefined, { log });
  await rest.app.listen({ host: '127.0.0.1', port: 0 });
  port = (rest.app.server.address() as AddressInfo).port;
  node = await enrolled(rest, 'n1');
  agent = node.agent;
  pool = agent.setPool({});
  await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
});
beforeEach(async () => {
  content = randomBytes(300_000);
  file = agent.setFile({ poolId: pool.id, filename: `web 1 – ${randomUUID()}.tar` });
  agent.contents.set(file.filename, content);
  agent.contents.set(`${file.filename}#1_web.xml`, Buffer.from('<domain/>'));
  path = `/api/library/${file.id}/download/`;
  const { body } = await rest.call('POST', `/api/data-pools/${pool.id}/scan/?async=1`, { body: {} });
  agent.succeed(body._task.id, { files: [file] });
  await ended(rest, body._task.id);
});
afterEach(() => {
  agent.sizesUnknown = false;
});
afterAll(() => stopAll(rest));

/** Sends a request and answers as soon as its headers are there. */
function open(
  url: string,
  headers: Record<string, string> = {},
  method = 'GET',
  as: Role = 'operator',
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const authorization = `jwt ${rest.tokens[as]}`;
    const request = httpRequest({ port, path: url, method, headers: { authorization, ...headers } }, resolve);
    request.on('error', reject);
    request.end();
  });
}

async function get(url: string, headers: Record<string, string> = {}, method = 'GET') {
  const response = await open(url, headers, method);
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  return { status: response.statusCode, headers: response.headers, bytes: Buffer.concat(chunks) };
}

const keyOf = (bytes: Buffer) => JSON.parse(bytes.toString()).errors[0].msg_key;

describe('a download', () => {
  test('is the whole file, with its length and name', async () => {
    const { status: code, headers, bytes } = await get(path);
    expect(code).toBe(200);
    expect(headers).toMatchObject({
      'content-length': '300000',
      'accept-ranges': 'bytes',
      'content-type': 'application/octet-stream',
      'x-accel-buffering': 'no',
      'content-disposition': expect.stringMatching(
        /^attachment; filename="web_1___[\w-]+\.tar"; filename\*=UTF-8''web%201%20%E2%80%93%20/,
      ),
    });
    expect(bytes.equals(content)).toBe(true);
  });

  test.each([
    ['bytes=0-0', 0, 1],
    ['bytes=1000-', 1000, 300_000],
    ['bytes=100000-200000', 100_000, 200_001],
    ['bytes=-7', 299_993, 300_000],
    ['bytes=299999-400000', 299_999, 300_000],
  ])('of %s is that range', async (range, from, to) => {
    const { status: code, headers, bytes } = await get(path, { range });
    expect([code, headers['content-range']]).toEqual([206, `bytes ${from}-${to - 1}/300000`]);
    expect(headers['content-length']).toBe(String(to - from));
    expect(bytes.equals(content.subarray(from, to))).toBe(true);
  });

  test('beyond its end is refused; several ranges, another unit and changed bytes are all of it', async () => {
    const beyond = await get(path, { range: 'bytes=300000-' });
    expect([beyond.status, beyond.headers['content-range']]).toEqual([416, 'bytes */300000']);
    expect(keyOf(beyond.bytes)).toBe('range_not_satisfiable');
    for (const headers of [{ range: 'bytes=0-1,5-6' }, { range: 'lines=1-2' }])
      expect((await get(path, headers)).status).toBe(200);
    const { etag } = (await get(path)).headers;
    const conditional = { range: 'bytes=5-9' };
    expect((await get(path, { ...conditional, 'if-range': etag! })).status).toBe(206);
    expect((await get(path, { ...conditional, 'if-range': '"other"' })).status).toBe(200);
  });

  test('HEAD tells the length without the bytes', async () => {
    const whole = await get(path, {}, 'HEAD');
    expect([whole.status, whole.headers['content-length'], whole.bytes.length]).toEqual([200, '300000', 0]);
    const part = await get(path, { range: 'bytes=0-9' }, 'HEAD');
    expect([part.status, part.headers['content-length']]).toEqual([206, '10']);
    expect((await get(`/api/library/${randomUUID()}/download/`, {}, 'HEAD')).status).toBe(404);
    await until(() => agent.openDownloads === 0);
  });

  test('of one member; without ranges when its size is not known', async () => {
    const member = `${path}?member=1_web.xml`;
    const known = await get(member);
    expect([known.bytes.toString(), known.headers['content-disposition']]).toEqual([
      '<domain/>',
      expect.stringContaining('filename="1_web.xml"'),
    ]);
    agent.sizesUnknown = true;
    const unknown = await get(member, { range: 'bytes=1-2' });
    expect([unknown.status, unknown.bytes.toString()]).toEqual([200, '<domain/>']);
    expect(unknown.headers['content-length']).toBeUndefined();
    expect(unknown.headers['accept-ranges']).toBe('none');
    const nothing = await get(`${path}?member=none`);
    expect([nothing.status, keyOf(nothing.bytes)]).toEqual([404, 'member_not_found']);
  });

  test('an empty file is empty', async () => {
    agent.contents.set(file.filename, Buffer.alloc(0));
    const whole = await get(path);
    expect([whole.status, whole.headers['content-length'], whole.bytes.length]).toEqual([200, '0', 0]);
    expect((await get(path, { range: 'bytes=0-' })).status).toBe(416);
  });

  test('is read no faster than its reader reads, and ends on the node when the reader goes', async () => {
    agent.contents.set(file.filename, Buffer.alloc(256 * MiB));
    const before = agent.sentBytes;
    const response = await open(path);
    response.once('readable', () => {});
    let last = -1;
    await until(async () => {
      const sent = agent.sentBytes;
      const still = sent === last;
      last = sent;
      await new Promise(resolve => setTimeout(resolve, 200));
      return still && agent.sentBytes === sent;
    });
    expect(agent.sentBytes - before).toBeLessThan(64 * MiB);
    expect(agent.openDownloads).toBe(1);
    response.destroy();
    await until(() => agent.openDownloads === 0);
  });

  test.each([
    ['its token', () => Promise.reject(new VirtkeepError('token_revoked'))],
    ['the right to it', async (before: Principal) => ({ ...before, role: 'auditor' as const })],
  ])('ends soon after %s, however much there is to read', async (_what, present) => {
    agent.contents.set(file.filename, Buffer.alloc(256 * MiB));
    const beats: (() => void)[] = [];
    const interval = jest.spyOn(globalThis, 'setInterval').mockImplementation(((beat: () => void) => {
      beats.push(beat);
    }) as never);
    const response = await open(path);
    interval.mockRestore();
    response.once('readable', () => {});
    for (const beat of beats) beat();
    expect((await get(path, { range: 'bytes=0-0' })).status).toBe(206);
    expect(agent.openDownloads).toBe(1);
    const { tokens } = rest.services;
    const before = await tokens.principal(rest.tokens.operator);
    const revoked = jest.spyOn(tokens, 'principal').mockImplementation(() => present(before));
    for (const beat of beats) beat();
    await until(() => agent.openDownloads === 0);
    revoked.mockRestore();
    response.destroy();
  });

  test('ends short when the node goes away, so that nobody takes it for whole', async () => {
    agent.contents.set(file.filename, Buffer.alloc(256 * MiB));
    const response = await open(path);
    const read = (async () => {
      for await (const _ of response);
    })();
    await agent.stop();
    await expect(read).rejects.toMatchObject({ code: 'ECONNRESET' });
    const away = await get(path);
    expect([away.status, keyOf(away.bytes)]).toEqual([503, 'node_unreachable']);
    await status(rest, agent.id, 'FAILED');
    await agent.start(node.tls);
    await status(rest, agent.id, 'ACTIVE');
  });

  test('beyond a bound of them is refused, and possible again when one has ended', async () => {
    agent.contents.set(file.filename, Buffer.alloc(16 * MiB));
    const some = (as: Role) => Promise.all(Array.from({ length: 16 }, () => open(path, {}, 'GET', as)));
    const open32 = await some('operator');
    const refused = await get(path);
    expect([refused.status, keyOf(refused.bytes)]).toEqual([429, 'too_many_requests']);
    open32.push(...(await some('administrator')));
    const other = await open(path, {}, 'GET', 'administrator');
    expect(other.statusCode).toBe(429);
    expect(refused.headers['retry-after']).toBe('30');
    for (const response of open32) response.destroy();
    agent.contents.set(file.filename, content);
    await until(async () => (await get(path)).status === 200);
  });

  test.each([
    ['while there is more to read', 256],
    ['when all of it waits to be read', 16],
  ])('that nobody takes ends, %s, and lets go of the file', async (_when, sizeMiB) => {
    agent.contents.set(file.filename, Buffer.alloc(sizeMiB * MiB));
    // long enough for one request on a busy machine
    rest.services.config.limits.download_idle_s = 3;
    const response = await open(path);
    response.once('readable', () => {});
    const remove = () => rest.call('POST', `/api/library/${file.id}/remove/?async=1`, { body: {} });
    expect((await remove()).body.errors[0].msg_key).toBe('file_busy');
    await until(() => agent.openDownloads === 0);
    await until(async () => (await remove()).status === 202);
    rest.services.config.limits.download_idle_s = 60;
    response.destroy();
  });

  test('of who has gone before it begins counts for nothing', async () => {
    const { tokens } = rest.services;
    const principal = tokens.principal.bind(tokens);
    for (let count = 0; count < 20; count += 1) {
      const socket = connect(port, '127.0.0.1');
      const served = once(rest.app.server, 'connection');
      tokens.principal = async token => {
        const viewer = await principal(token);
        const closed = once(((await served) as [Socket])[0], 'close');
        socket.destroy();
        await closed;
        reached.resolve();
        return viewer;
      };
      const reached = Promise.withResolvers<void>();
      socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\nauthorization: jwt ${rest.tokens.operator}\r\n\r\n`);
      await reached.promise;
    }
    tokens.principal = principal;
    expect((await get(path)).status).toBe(200);
    expect(logged).toEqual([]);
  });

  test('is for those who may', async () => {
    for (const as of ['auditor', 'backup_service'] as const)
      expect((await rest.call('GET', path, { as })).status).toBe(403);
  });
});
