import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { Principal } from '../auth/principal.ts';
import { eventRoutes } from './routes/events.ts';
import { type TestServer, testServer } from './test-server.ts';

let server: TestServer;
let url: string;
let hangUp: AbortController;
/** What nobody holds is collected, and its connection ends with it. */
let opened: Response[];

beforeEach(async () => {
  server = await testServer([eventRoutes], { limits: { event_streams: 2 } });
  await server.app.listen({ host: '127.0.0.1', port: 0 });
  url = `http://127.0.0.1:${(server.app.server.address() as AddressInfo).port}/api/events/stream/`;
  hangUp = new AbortController();
  opened = [];
});

afterEach(async () => {
  hangUp.abort();
  server.draining.abort();
  await server.close();
});

async function open(lastId?: string, authorization = server.authorization) {
  const headers = {
    authorization,
    ...(lastId === undefined ? {} : { 'last-event-id': lastId }),
  };
  const response = await fetch(url, { headers, signal: hangUp.signal });
  opened.push(response);
  return response;
}

/** Reads until the text fits. */
async function readUntil(response: Response, pattern: RegExp): Promise<string> {
  const reader = response.body!.getReader();
  let text = '';
  while (!pattern.test(text)) {
    const { value, done } = await reader.read();
    if (done) break;
    text += Buffer.from(value).toString();
  }
  reader.releaseLock();
  return text;
}

test('tells what happens, as the viewer may see it', async () => {
  const response = await open();
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  expect(response.headers.get('x-accel-buffering')).toBe('no');
  await readUntil(response, /^id: /m);
  const user = { id: server.userId, username: 'root' };
  const task = await server.services.tasks.create({ name: 'act', verboseName: 'Act', user, entities: [] });
  const text = await readUntil(response, /event: task\ndata: .*\n\n/);
  const data = JSON.parse(/data: (\{.*task.*|\{.*\})\n/.exec(text)![1]!);
  expect(data).toMatchObject({
    id: task.row.id,
    action: 'created',
    record: { permissions: ['cancel'] },
  });
});

test('what listeners see alike is made once for them, and each sees what is its own', async () => {
  server.services.config.limits.event_streams = 3;
  const login = async (username: string) => {
    const { id } = await server.services.users.create({
      username,
      password: 'long enough 1',
      role: 'operator',
    });
    const { token } = await server.services.tokens.create(id, 'test', 1);
    return `jwt ${token}`;
  };
  const streams = [
    await open(),
    await open(undefined, await login('one')),
    await open(undefined, await login('two')),
  ];
  for (const stream of streams) await readUntil(stream, /^id: /m);
  const made: string[] = [];
  const show = (entityId: string, sameFor: (viewer: Principal) => string) =>
    server.services.changes.publish({
      kind: 'task',
      entityId,
      action: 'changed',
      sameFor,
      render: viewer => {
        made.push(`${entityId} ${sameFor(viewer)}`);
        return `for ${viewer.username}`;
      },
    });
  show('all', () => '');
  show('role', ({ role }) => role);
  show('own', ({ username }) => username);
  const texts = await Promise.all(streams.map(stream => readUntil(stream, /"id":"own".*\n\n/)));
  expect(made.toSorted()).toEqual([
    'all ',
    'own one',
    'own root',
    'own two',
    'role administrator',
    'role operator',
  ]);
  const shown = (text: string) => [...text.matchAll(/"record":"for (.*)"/g)].map(([, name]) => name);
  expect(texts.map(shown)).toEqual([
    ['root', 'root', 'root'],
    ['root', 'one', 'one'],
    ['root', 'one', 'two'],
  ]);
});

test('one whom a change cannot be told is told to load everything again, and goes on', async () => {
  const response = await open();
  await readUntil(response, /^id: /m);
  const { changes } = server.services;
  const render = () => {
    throw new Error('nothing to show');
  };
  changes.publish({ kind: 'task', entityId: 'a', action: 'changed', render });
  await readUntil(response, /event: reset/);
  publish('b', 'as ever');
  await readUntil(response, /as ever/);
});

test('a client that resumes gets what it missed, and a reset when that is not known', async () => {
  const before = server.services.changes.lastId;
  await server.services.events.record({ type: 'info', message: 'while away' });
  expect(await readUntil(await open(before), /event: event/)).toContain('while away');
  expect(await readUntil(await open('other-7'), /event: /)).toContain('event: reset');
});

test('the number of streams is bounded', async () => {
  await open();
  await open();
  const refused = await open();
  expect([refused.status, refused.headers.get('content-type')]).toEqual([
    429,
    'application/json; charset=utf-8',
  ]);
});

test('one user does not take them all', async () => {
  server.services.config.limits.event_streams = 4;
  server.services.config.limits.event_streams_per_user = 2;
  const { id } = await server.services.users.create({
    username: 'other',
    password: 'long enough 1',
    role: 'auditor',
  });
  const { token } = await server.services.tokens.create(id, 'test', 1);
  await open();
  await open();
  expect((await open()).status).toBe(429);
  expect((await open(undefined, `jwt ${token}`)).status).toBe(200);
});

test('who has gone before the stream begins takes none', async () => {
  const { tokens } = server.services;
  const principal = tokens.principal.bind(tokens);
  const connections: Promise<unknown>[] = [];
  server.app.server.on('connection', (socket: Socket) => connections.push(once(socket, 'close')));
  tokens.principal = async token => {
    const viewer = await principal(token);
    hangUp.abort();
    await connections.at(-1);
    return viewer;
  };
  for (let count = 0; count < 3; count += 1) {
    hangUp = new AbortController();
    await expect(open()).rejects.toThrow();
  }
  tokens.principal = principal;
  hangUp = new AbortController();
  expect((await open()).status).toBe(200);
  expect(server.services.changes.listenerCount).toBe(1);
});

test('ends when the controller stops', async () => {
  const response = await open();
  await readUntil(response, /^id: /m);
  server.draining.abort();
  expect(await readUntil(response, /never/)).not.toContain('never');
});

/** Beats that tests give themselves. */
function takeBeats(): { beats: (() => void)[]; restore(): void } {
  const beats: (() => void)[] = [];
  const spy = jest.spyOn(globalThis, 'setInterval').mockImplementation(((beat: () => void) => {
    beats.push(beat);
  }) as never);
  return { beats, restore: () => spy.mockRestore() };
}

test.each([
  ['is given another role', { role: 'auditor' }],
  ['may do it no longer', { enabled: false }],
] as const)('ends when its user %s, and goes on as that', async (_what, change) => {
  const { id } = await server.services.users.create({
    username: 'other',
    password: 'long enough 1',
    role: 'operator',
  });
  const { token } = await server.services.tokens.create(id, 'test', 1);
  const { beats, restore } = takeBeats();
  try {
    const response = await open(undefined, `jwt ${token}`);
    await readUntil(response, /^id: /m);
    for (const beat of beats) beat();
    await readUntil(response, /^: alive/m);
    await server.services.users.change(id, change);
    for (const beat of beats) beat();
    expect(await readUntil(response, /: alive/)).toBe('');
  } finally {
    restore();
  }
});

/** A stream that nobody reads, and that has something in it that waits for its reader. */
async function unread(): Promise<{ socket: Socket; response: ServerResponse }> {
  const responses: ServerResponse[] = [];
  server.app.server.on('request', (_request, response: ServerResponse) => responses.push(response));
  const { port } = server.app.server.address() as AddressInfo;
  const socket = connect({ port, host: '127.0.0.1' });
  socket.on('error', () => {});
  socket.pause();
  const head = `GET /api/events/stream/ HTTP/1.1\r\nhost: x\r\nauthorization: ${server.authorization}\r\n\r\n`;
  socket.write(head);
  while (server.services.changes.listenerCount === 0) await turn();
  const response = responses[0]!;
  while (!response.writableNeedDrain) {
    publish('filler', 'x'.repeat(100_000));
    await turn();
  }
  return { socket, response };
}

const turn = () => new Promise(resolve => setImmediate(resolve));
const FAKE: Parameters<typeof jest.useFakeTimers>[0] = {
  doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask', 'performance', 'Date'],
};

/** Tells at once: timers may be the test's own. */
function publish(entityId: string, record: string): void {
  const { changes } = server.services;
  changes.publish({ kind: 'task', entityId, action: 'changed', render: () => record });
  changes.tell();
}

test('one that is not read is forgotten at once when it ends, and let go of soon after', async () => {
  const { socket, response } = await unread();
  const closed = once(response, 'close');
  jest.useFakeTimers(FAKE);
  try {
    server.draining.abort();
    expect(server.services.changes.listenerCount).toBe(0);
    expect(response.destroyed).toBe(false);
    jest.advanceTimersByTime(10_000);
  } finally {
    jest.useRealTimers();
  }
  await closed;
  socket.destroy();
});

test('one that reads slowly is told once of what changed many times, in order, and misses nothing', async () => {
  const { socket } = await unread();
  const twoMiB = 2 * 1024 * 1024;
  for (let round = 0; round * 1000 < twoMiB; round += 1) publish('often', `${round} ${'y'.repeat(1000)}`);
  publish('once', 'alone');
  publish('often', 'the last');
  let text = '';
  socket.on('data', piece => {
    text += piece;
  });
  socket.resume();
  while (!text.includes('the last')) await once(socket, 'data');
  const records = [...text.matchAll(/"id":"(once|often)","action":"changed","record":"(.{0,10})/g)];
  expect(records.map(([, id, record]) => `${id}: ${record}`).slice(-2)).toEqual([
    'once: alone"}',
    'often: the last"}',
  ]);
  expect(records.length).toBeLessThan(100);
  const sequences = [...text.matchAll(/^id: .*-(\d+)$/gm)].map(([, sequence]) => Number(sequence));
  expect(sequences).toEqual(sequences.toSorted((a, b) => a - b));
  socket.destroy();
});

const many = (from: number, to: number) => {
  for (let number = from; number < to; number += 1) publish(`thing-${number}`, 'z'.repeat(100_000));
};

test('one for whom too much waits is told to load everything again, and goes on', async () => {
  const { socket, response } = await unread();
  many(0, 20);
  publish('late', 'after it');
  expect(response.destroyed).toBe(false);
  let text = '';
  socket.on('data', piece => {
    text += piece;
  });
  socket.resume();
  while (!text.includes('after it')) await once(socket, 'data');
  const told = text.slice(text.lastIndexOf('event: reset'));
  expect(told).toContain('data: {}');
  expect(told).not.toContain('thing-0');
  publish('later', 'as ever');
  while (!text.includes('as ever')) await once(socket, 'data');
  socket.destroy();
});

test('one who missed too much for it to be told is told to load everything again', async () => {
  const before = server.services.changes.lastId;
  many(0, 20);
  const response = await open(before);
  const newest = server.services.changes.lastId;
  publish('late', 'after it');
  const text = await readUntil(response, /after it/);
  expect(text).toMatch(/^retry: \d+\n/);
  const told = text.slice(text.indexOf(`id: ${newest}\nevent: reset\ndata: {}`));
  expect(told.match(/^event: .*$/gm)).toEqual(['event: reset', 'event: task']);
});

test('one who resumes is told once of what changed many times', async () => {
  const before = server.services.changes.lastId;
  for (let round = 0; round < 50; round += 1) publish('often', `round ${round}`);
  publish('once', 'alone');
  const text = await readUntil(await open(before), /alone/);
  expect([...text.matchAll(/round \d+/g)].map(String)).toEqual(['round 49']);
});

test('one who reads nothing is let go of after a minute', async () => {
  jest.useFakeTimers(FAKE);
  try {
    const { response } = await unread();
    const closed = once(response, 'close');
    jest.advanceTimersByTime(59_000);
    expect(response.destroyed).toBe(false);
    jest.advanceTimersByTime(1_000);
    await closed;
    expect(server.services.changes.listenerCount).toBe(0);
  } finally {
    jest.useRealTimers();
  }
});

test('forgets clients that went away', async () => {
  await open();
  expect(server.services.changes.listenerCount).toBe(1);
  hangUp.abort();
  while (server.services.changes.listenerCount > 0) await new Promise(resolve => setTimeout(resolve, 10));
});
