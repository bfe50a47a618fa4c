/** Attacks by whom the controller knows nothing of: floods, and sockets that are held. */
import { once } from 'node:events';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterEach, expect, test } from '@jest/globals';
import { buildServer } from '../../../controller/src/http/server.ts';
import { serverTls } from '../../../controller/src/tls.ts';
import { makeRestApp, type RestApp } from './app.ts';

let rest: RestApp;
let port: number;
const sockets: Socket[] = [];

async function start(limits: object): Promise<void> {
  rest = await makeRestApp({ limits });
  await rest.app.listen({ host: '127.0.0.1', port: 0 });
  port = (rest.app.server.address() as AddressInfo).port;
}

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await rest.close();
});

/** A connection that never says by itself that it has ended. */
function dial(text = ''): { socket: Socket; ended: Promise<unknown>; received: () => string } {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  sockets.push(socket);
  let received = '';
  socket.on('data', chunk => {
    received += String(chunk);
  });
  socket.on('error', () => {});
  const ended = Promise.race([once(socket, 'end'), once(socket, 'close')]);
  if (text !== '') socket.write(text);
  return { socket, ended, received: () => received };
}

/** Waits until the server holds no more connections than this. */
async function held(most: number): Promise<void> {
  const count = () =>
    new Promise<number>((resolve, reject) =>
      rest.app.server.getConnections((error, number) => (error ? reject(error) : resolve(number))),
    );
  while ((await count()) > most) await new Promise(resolve => setTimeout(resolve, 10));
}

test.each([
  ['401', 'GET', '/api/tasks/', null],
  ['403', 'GET', '/api/audit/', 'operator'],
  ['404', 'GET', '/api/nothing/', null],
  ['405', 'DELETE', '/api/tasks/', null],
  ['400', 'GET', '/%zz', null],
] as const)('a flood of %s is limited', async (status, method, url, as) => {
  await start({ requests_per_minute: 10 });
  const statuses: number[] = [];
  for (let count = 0; count < 12; count += 1) statuses.push((await rest.call(method, url, { as })).status);
  expect(statuses).toEqual([...Array(10).fill(Number(status)), 429, 429]);
});

test('the probes of a supervisor are not', async () => {
  await start({ requests_per_minute: 10 });
  for (let count = 0; count < 12; count += 1)
    expect((await rest.call('GET', '/healthz', { as: null })).status).toBe(200);
});

test.each([
  ['says nothing', ''],
  ['does not end its head', 'GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: '],
  [
    'does not end its body',
    'POST /auth/ HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{',
  ],
  ['asks for nothing, with a body', 'GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n'],
])('a client that %s is let go in time, though it does not hang up', async (_what, text) => {
  await start({ request_timeout_s: 0.3 });
  const { ended } = dial(text);
  await ended;
  await held(0);
});

test('a client that begins no TLS is let go in time, too', async () => {
  await start({ request_timeout_s: 0.3 });
  const { services, ca } = rest;
  const secure = await buildServer({ services, routes: [], tls: await serverTls(services.config, ca) });
  await secure.listen({ host: '127.0.0.1', port: 0 });
  port = (secure.server.address() as AddressInfo).port;
  await dial().ended;
  await dial('\u0016\u0003\u0001').ended;
  await secure.close();
});

test('a client that asks on and on and takes no answer is let go', async () => {
  await start({ request_timeout_s: 0.3 });
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  sockets.push(socket);
  socket.on('error', () => {});
  socket.pause();
  socket.write('GET /api/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n'.repeat(60));
  await once(rest.app.server, 'request');
  await held(0);
});

test('so is one that does so with files that are streamed', async () => {
  await start({ request_timeout_s: 0.3 });
  const ask = 'GET /api/docs/static/swagger-ui.css HTTP/1.1\r\nhost: x\r\n\r\n';
  const { socket } = dial();
  await once(socket, 'connect');
  socket.pause();
  socket.write(ask.repeat(60));
  await once(rest.app.server, 'request');
  await held(0);
});

test('a refusal with a body that was not read ends the connection at once', async () => {
  await start({});
  for (const head of [
    'POST /api/users/ HTTP/1.1\r\nhost: x',
    'POST /api/nothing/ HTTP/1.1\r\nhost: x',
    `PUT /api/pools/ HTTP/1.1\r\nhost: x\r\nauthorization: jwt ${rest.tokens.auditor}`,
  ]) {
    const { ended, received } = dial(
      `${head}\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n{"a`,
    );
    await ended;
    expect(received()).toMatch(/^HTTP\/1.1 40[14] /);
    expect(received().toLowerCase()).toContain('connection: close');
    await held(0);
  }
});

test('what is no HTTP is answered and let go', async () => {
  await start({});
  const { ended, received } = dial('nonsense\r\n\r\n');
  await ended;
  expect(received()).toMatch(/^HTTP\/1.1 400 /);
  await held(0);
});

test.each([
  ['one address', { connections_per_address: 3 }],
  ['all', { connections: 3 }],
])('connections of %s are bounded', async (_whose, limits) => {
  await start({ request_timeout_s: 60, ...limits });
  const first = Array.from({ length: 3 }, () => dial());
  await Promise.all(first.map(({ socket }) => once(socket, 'connect')));
  await dial().ended;
  first[0]!.socket.destroy();
  await held(2);
  const { received, socket } = dial('GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(socket, 'data');
  expect(received()).toMatch(/^HTTP\/1.1 200 /);
});
